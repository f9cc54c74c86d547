"""Videos of ERNIE 4.5 VL over HTTP: a server draws times on frames, and answers as `transformers`
does with these."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pagemill.engine.llm import LLM
from pagemill.render.media.frame_times import open_drawn_times
from pagemill.render.media.video_processors import open_video_processor
from pagemill.render.testing.clips import jpeg, picture
from PIL import Image, ImageFont
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Whitespace

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.media.ernie_vl_models import ernie_vl
from tests.media.media_model import MediaTestModel

TEMPLATE = (
    "{% for message in messages %}t20 {% for part in message['content'] %}"
    "{% if part['type'] == 'video' %} <|VIDEO_START|><|video@placeholder|><|VIDEO_END|> "
    "{% else %} {{ part['text'] }} {% endif %}"
    "{% endfor %} t21 {% endfor %}t22"
)
OPTIONS = {
    "max_model_len": 200,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
FIELDS = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
SIZES = {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 1024}}
FRAMES = [picture(10 * number) for number in range(5)]


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("ernie_vl")
    model = ernie_vl(path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    videos = {"video_processor_type": "Ernie4_5_VLMoeVideoProcessor", "font": "font.ttf"}
    images = {"image_processor_type": "Ernie4_5_VLMoeImageProcessor"}
    settings = {"image_processor": images | SIZES, "video_processor": videos | SIZES}
    (path / "processor_config.json").write_text(json.dumps(settings))
    (path / "font.ttf").write_bytes(ImageFont.load_default(10).font_bytes)
    return model


@pytest.fixture(scope="module", name="server")
def _server(
    model: MediaTestModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    with serve(str(model.path), tmp_path_factory.mktemp("log"), options) as server:
        yield server


def video_part(frames: list[Image.Image]) -> dict[str, Any]:
    """JPEG files, two a second."""
    files = ",".join(base64.b64encode(jpeg(frame)).decode() for frame in frames)
    return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{files}"}}


def chat(server: ServerProcess, *parts: dict[str, Any]) -> httpx.Response:
    body = {"model": NAME, "messages": [{"role": "user", "content": list(parts)}], **FIELDS}
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)


def test_answers_are_those_of_transformers(server: ServerProcess, model: MediaTestModel) -> None:
    times = open_drawn_times(model.path)
    assert times is not None
    gray = [Image.new("RGB", frame.size, frame.getpixel((0, 0))) for frame in FRAMES]
    drawn = [times(frame, number / 2) for number, frame in enumerate(gray)]
    patches, grid = open_video_processor(model.path, 64)(drawn, len(drawn))
    assert grid[0] == 6, "the last of five frames counts twice"
    parts = [{"type": "text", "text": "t30 t31"}, video_part(FRAMES)]
    answer = chat(server, *parts).json()
    with LLM(str(model.path), **OPTIONS) as llm:
        (offline,) = llm.chat([{"role": "user", "content": parts}], **FIELDS)
    model.check(offline, [(patches, grid, None)])
    assert answer["choices"][0]["message"]["content"] == offline.choices[0].text
    assert answer["usage"]["prompt_tokens"] == len(offline.prompt_token_ids)
    models = httpx.get(f"{server.base_url}/v1/models").json()
    assert models["data"][0]["input_modalities"] == ["text", "image", "video"]


def test_refusals(server: ServerProcess) -> None:
    answer = chat(server, video_part([picture(1, (8, 40))]))
    assert answer.status_code == 400, answer.text
    assert "both sides must have at least 10" in answer.json()["error"]["message"]
