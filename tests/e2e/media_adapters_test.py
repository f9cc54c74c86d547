"""Adapters that follow from media, over HTTP: every route answers audio, or an image, as the
offline model does when the adapter is named, and text as it does without one."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from pagemill.engine.llm import LLM
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.adapters.peft_adapters import with_adapters
from tests.e2e.server_process import NAME, ServerProcess, serve, wait_until_ready
from tests.media.audio_models import PLACEHOLDER, audio
from tests.media.granite_speech_models import granite_speech
from tests.parity.tiny_models import LLAVA_PLACEHOLDER, make

pytestmark = pytest.mark.filterwarnings("ignore")

assert PLACEHOLDER == LLAVA_PLACEHOLDER
# Words of the vocabulary around each message, and a placeholder where it has audio or an image.
TEMPLATE = (
    "{% for message in messages %}t20 {% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %} {{ part['text'] }} {% else %} <media> {% endif %}"
    "{% endfor %}{% endif %} t21 {% endfor %}t22"
)
OPTIONS = {
    "max_model_len": 200,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
SOUND = audio(1, 9000)
CAT = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)


def wav(samples: np.ndarray) -> bytes:
    """A file without a loss."""
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    return file.getvalue()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def save_files(path: Path, settings: dict[str, Any]) -> None:
    """Tokenizer, template and the settings of what prepares media."""
    vocab = {"<media>" if i == PLACEHOLDER else f"t{i}": i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens(["<media>"])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    (path / "preprocessor_config.json").write_text(json.dumps(settings))


HEARD = {"type": "input_audio", "input_audio": {"data": base64_of(wav(SOUND)), "format": "wav"}}
WORDS = {"type": "text", "text": "t30 t31"}
GREEDY = {"temperature": 0.0, "ignore_eos": True}
MAX_TOKENS = 6
ASKED = "can you transcribe the speech into a written format?"
_FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
_PIXELS = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 24},
    "crop_size": {"height": 24, "width": 24},
}
# Settings with which the log-mel frames of Granite Speech are made.
_EXTRACTOR = {
    "feature_extractor_type": "GraniteSpeechFeatureExtractor",
    "sampling_rate": 16_000,
    "melspec_kwargs": {
        "sample_rate": 16_000,
        "n_fft": 512,
        "win_length": 400,
        "hop_length": 160,
        "n_mels": 80,
    },
}


@dataclass(frozen=True)
class Served:
    """A running server of a checkpoint with an adapter, and its operator's routes."""

    path: Path
    server: ServerProcess
    operator: httpx.Client

    def post(self, route: str, status: int = 200, **body: Any) -> Any:
        answer = httpx.post(f"{self.server.base_url}{route}", json=body, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def chat(self, *parts: dict[str, Any], status: int = 200, model: str = NAME) -> Any:
        messages = [{"role": "user", "content": list(parts)}]
        body = {"model": model, "messages": messages, "max_tokens": MAX_TOKENS, **GREEDY}
        return self.post("/v1/chat/completions", status, **body)

    def said(self, *parts: dict[str, Any], model: str = NAME) -> str:
        return self.chat(*parts, model=model)["choices"][0]["message"]["content"]

    def transcribed(self) -> str:
        data = {"model": NAME, "max_completion_tokens": str(MAX_TOKENS), "temperature": "0"}
        files = {"file": ("a.wav", wav(SOUND))}
        url = f"{self.server.base_url}/v1/audio/transcriptions"
        answer = httpx.post(url, files=files, data=data, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["text"]


@pytest.fixture(scope="module", name="path")
def _path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("granite_speech")
    reference, _ = granite_speech(path)
    with_adapters(reference, path, ["default", "other"])
    save_files(path, _EXTRACTOR)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"has_lora_adapter": True}))
    return path


@pytest.fixture(name="served", scope="module", params=["", "--data-parallel-size=2"])
def _served(request: pytest.FixtureRequest, path: Path) -> Iterator[Served]:
    # pytest's own folders are too long for a socket's path
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [
            *_FLAGS,
            f"--lora-modules=other={path / 'other'}",
            *filter(None, [request.param]),
        ]
        options.append(f"--admin-address={folder}/admin")
        with serve(str(path), folder, options) as server:
            transport = httpx.HTTPTransport(uds=f"{folder}/admin")
            with httpx.Client(transport=transport, base_url="http://operator") as operator:
                wait_until_ready(server.process, operator, server.log)
                yield Served(path, server, operator)


@pytest.fixture(scope="module", name="expected")
def _expected(path: Path) -> dict[str, list[str]]:
    """Of each adapter, "" for none: the answer to SOUND and WORDS, to WORDS, and the transcript."""
    modules = [f"own={path}", f"other={path / 'other'}"]
    sound = {"type": "audio", "audio": SOUND}
    asked = [[sound, WORDS], [WORDS], [sound, {"type": "text", "text": ASKED}]]
    messages = [[{"role": "user", "content": parts}] for parts in asked]
    answers: dict[str, list[str]] = {}
    with LLM(str(path), **OPTIONS, lora_modules=modules, default_mm_loras={}) as llm:
        for name in ("", "own", "other"):
            outputs = llm.chat(
                messages, adapter=name, max_tokens=MAX_TOKENS, progress=io.StringIO(), **GREEDY
            )
            answers[name] = [output.choices[0].text for output in outputs]
    for texts in zip(*answers.values(), strict=True):
        assert len(set(texts)) == 3, "the adapters change no token: nothing would be tested"
    return answers


def test_routes_of_audio(served: Served, expected: dict[str, list[str]]) -> None:
    (heard, _, transcript), (_, plain, _) = expected["own"], expected[""]
    for _ in range(2):  # with what is cached, too
        assert served.said(HEARD, WORDS) == heard
        assert served.said(WORDS) == plain
    # Up to a token that ends texts.
    assert transcript.strip().startswith(served.transcribed())
    sound = {"type": "input_audio", "input_audio": HEARD["input_audio"]}
    content = [sound, {"type": "input_text", "text": WORDS["text"]}]
    response = served.post(
        "/v1/responses",
        model=NAME,
        input=[{"role": "user", "content": content}],
        max_output_tokens=MAX_TOKENS,
        **GREEDY,
    )
    assert response["output"][0]["content"][0]["text"] == heard


def test_named_adapters(served: Served, expected: dict[str, list[str]]) -> None:
    assert served.said(HEARD, WORDS, model="other") == expected["other"][0]
    assert served.said(WORDS, model="audio") == expected["own"][1]
    listed = httpx.get(f"{served.server.base_url}/v1/models").json()["data"]
    assert [card["id"] for card in listed] == [NAME, "other", "audio"]


def test_one_that_is_unloaded(served: Served, expected: dict[str, list[str]]) -> None:
    unloaded = served.operator.post("/v1/unload_lora_adapter", json={"lora_name": "audio"})
    assert unloaded.status_code == 200, unloaded.text
    error = served.chat(HEARD, WORDS, status=503)["error"]
    assert "`audio`, which has been unloaded" in error["message"]
    assert served.said(WORDS) == expected[""][1]
    again = {"lora_name": "audio", "lora_path": str(served.path)}
    assert served.operator.post("/v1/load_lora_adapter", json=again).status_code == 200
    assert served.said(HEARD, WORDS) == expected["own"][0]


def test_images_by_an_option(tmp_path: Path) -> None:
    """Also in the messages of Anthropic's API."""
    path = tmp_path / "llava"
    path.mkdir()
    with_adapters(make("llava", path), tmp_path)
    save_files(path, _PIXELS)
    data = base64_of(png(CAT))
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    message = [{"role": "user", "content": [WORDS, image]}]
    answers: dict[str, str] = {}
    with LLM(str(path), **OPTIONS, lora_modules=[f"own={tmp_path / 'first'}"]) as llm:
        for name in ("", "own"):
            (output,) = llm.chat(
                message, adapter=name, max_tokens=MAX_TOKENS, progress=io.StringIO(), **GREEDY
            )
            answers[name] = output.choices[0].text
    assert answers[""] != answers["own"]
    option = f"--default-mm-loras={json.dumps({'image': str(tmp_path / 'first')})}"
    with serve(str(path), tmp_path, [*_FLAGS, option, "--isolate-engine"]) as server:
        body = {"model": NAME, "max_tokens": MAX_TOKENS, "temperature": 0.0}
        url_of = f"{server.base_url}/v1"
        chat = httpx.post(
            f"{url_of}/chat/completions",
            json={**body, "messages": message, "ignore_eos": True},
            timeout=60,
        )
        assert chat.json()["choices"][0]["message"]["content"] == answers["own"]
        source = {"type": "base64", "media_type": "image/png", "data": data}
        blocks = [WORDS, {"type": "image", "source": source}]
        reply = httpx.post(
            f"{url_of}/messages",
            json={**body, "messages": [{"role": "user", "content": blocks}]},
            timeout=60,
        )
        assert reply.status_code == 200, reply.text
        assert answers["own"].startswith(reply.json()["content"][0]["text"])
