"""Loads beside prompts of token ids: ramps, images, sounds and documents."""

import base64
import io
import json
import math
import random
import wave
from pathlib import Path

import pytest
from PIL import Image

from pagemill.benchmark.load_generator import Load, Ramp
from pagemill.benchmark.prompts import PromptConfig, Request
from pagemill.benchmark.random_media import MediaConfig, random_image, random_sound
from pagemill.benchmark.routes import BOUNDARY, ROUTES, SentFields
from pagemill.benchmark.serving import LoadConfig, requests_of
from pagemill.config import ConfigError

FIELDS = SentFields("tiny", None, ignore_eos=True)


@pytest.mark.parametrize(
    ("ramp", "rates"), [(None, [2, 2, 2]), ("linear", [2, 17, 32]), ("exponential", [2, 8, 32])]
)
def test_ramps(ramp: Ramp | None, rates: list[float]) -> None:
    requests = [Request([1], 1)] * 3
    load = Load(requests, FIELDS, 2.0, 1, 0, ramp=ramp, last_rate=32.0, burstiness=1e6)
    assert [load.rate(index) for index in range(3)] == pytest.approx(rates)
    rng = random.Random(0)
    gaps = [load.gap(index, rng) for index in range(3)]
    assert gaps == pytest.approx([1 / rate for rate in rates], rel=0.01)


def test_ramps_need_both_ends() -> None:
    for fields in ({"ramp_up": "linear"}, {"ramp_up_rate": 3.0, "request_rate": 1.0}):
        with pytest.raises(ConfigError, match="--ramp-up and --ramp-up-rate go together"):
            LoadConfig(**fields)
    with pytest.raises(ConfigError, match="add --request-rate"):
        LoadConfig(ramp_up="linear", ramp_up_rate=3.0, request_rate=math.inf)


def test_random_media() -> None:
    urls = {random_image(random.Random(seed), 33, 17) for seed in (1, 1, 2)}
    assert len(urls) == 2
    for url in urls:
        head, _, data = url.partition(",")
        assert head == "data:image/jpeg;base64"
        assert Image.open(io.BytesIO(base64.b64decode(data))).size == (33, 17)
    with wave.open(io.BytesIO(random_sound(random.Random(0), 0.5))) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (16_000, 8_000)
    for size in ("448", "0x3", "3x", "3x99999", "x"):
        with pytest.raises(ConfigError, match=r"--image-size: .* is no size"):
            MediaConfig(image_size=size)


def _config(tmp_path: Path, endpoint: str, **fields: object) -> LoadConfig:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"p{i}"}) for i in range(4)))
    prompts = PromptConfig(dataset=str(path), output_len=5)
    return LoadConfig(prompts=prompts, endpoint=endpoint, num_prompts=3, num_warmups=1, **fields)  # pyright: ignore[reportArgumentType]


def test_images_are_in_chats_and_responses(tmp_path: Path) -> None:
    media = MediaConfig(num_images=2, image_size="16x8")
    for endpoint in ("/v1/chat/completions", "/v1/responses"):
        _, requests = requests_of(_config(tmp_path, endpoint, media=media), len)
        assert len({url for request in requests for url in request.images}) == 6
        text = json.dumps(ROUTES[endpoint].body(requests[0], FIELDS))
        assert all(url in text for url in requests[0].images) and '"p0"' in text
    with pytest.raises(ConfigError, match="--num-images: requests of /v1/completions have none"):
        _config(tmp_path, "/v1/completions", media=media)


def test_documents_are_the_prompts_behind(tmp_path: Path) -> None:
    config = _config(tmp_path, "/v1/rerank", num_documents=2)
    _, requests = requests_of(config, len)
    assert [request.documents for request in requests] == [["p1", "p2"], ["p2", "p3"], ["p3", "p0"]]
    body = ROUTES["/v1/rerank"].body(requests[0], FIELDS)
    assert body == {"model": "tiny", "query": "p0", "documents": ["p1", "p2"]}


def test_sounds_are_files_of_forms() -> None:
    config = LoadConfig(
        endpoint="/v1/audio/transcriptions", num_prompts=2, media=MediaConfig(audio_seconds=0.1)
    )
    warmups, requests = requests_of(config, len)
    assert len({request.sound for request in (*warmups, *requests)}) == 4
    body = ROUTES[config.endpoint].body(requests[0], SentFields("tiny", 0.5, ignore_eos=True))
    assert isinstance(body, bytes)
    parts = body.split(f"--{BOUNDARY}".encode())
    assert len(parts) == 7 and parts[0] == b"" and parts[-1] == b"--\r\n"
    assert parts[-2].endswith(requests[0].sound + b"\r\n")
