"""Videos over HTTP: a server answers as the offline model does with the same frames."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pagemill.engine.llm import LLM
from pagemill.render.testing.clips import clip, jpeg, picture
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.media.qwen_vl_models import make_image_model
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER

WORDS = {
    QWEN2_VL_PLACEHOLDER: "<|image_pad|>",
    4: "<|video_pad|>",
    10: "<|vision_start|>",
    11: "<|vision_end|>",
} | {30 + tenth: f"<{tenth / 10:.1f} seconds>" for tenth in range(60)}
TEMPLATE = (
    "{% for message in messages %}t100 {% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %} {{ part['text'] }} {% endif %}"
    "{% endfor %}{% endif %} t101 {% endfor %}t102"
)
OPTIONS = {
    "max_model_len": 400,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
FIELDS = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
FILM, SHORT = clip(20, rate=10), clip(4, rate=2, kind="webm", codec="libvpx")


def url(data: bytes, kind: str = "video/mp4") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def video(given: str, **fields: Any) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": given}, **fields}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def save_files(path: Path) -> None:
    """Tokenizer, template and the processors' settings."""
    vocab = {WORDS.get(i, f"t{i}"): i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Split(Regex(r"\s+(?!seconds)"), "removed")
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens([word for word in WORDS.values() if word.startswith("<|")])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    size = {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 2048}}
    for name, kind in (("preprocessor", "image"), ("video_preprocessor", "video")):
        family = "Qwen2VLImageProcessor" if kind == "image" else "Qwen3VLVideoProcessor"
        settings = {f"{kind}_processor_type": family} | size
        (path / f"{name}_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module", name="path")
def _path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3_vl")
    make_image_model("qwen3_vl", path)
    save_files(path)
    return path


@pytest.fixture(scope="module", name="server")
def _server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    options += ['--limit-mm-per-prompt={"video": 2}', "--max-video-seconds=5"]
    options += ['--media-io-kwargs={"video": {"num_frames": 4}}']
    with serve(str(path), tmp_path_factory.mktemp("log"), options) as server:
        yield server


def chat(server: ServerProcess, *parts: dict[str, Any]) -> httpx.Response:
    message = {"role": "user", "content": list(parts)}
    body = {"model": NAME, "messages": [message], **FIELDS}
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)


def test_answers_are_those_of_the_offline_model(server: ServerProcess, path: Path) -> None:
    film = path / "film.mp4"
    film.write_bytes(FILM)
    answer = chat(server, video(url(FILM)), words("t110 t111"), video(url(SHORT), uuid="s"))
    hits = server.metric("mm_cache_hits_total")
    named = chat(server, video(url(FILM)), words("t110 t111"), {"type": "video_url", "uuid": "s"})
    assert answer.status_code == named.status_code == 200, answer.text + named.text
    assert answer.json()["choices"] == named.json()["choices"]
    assert server.metric("mm_cache_hits_total") - hits == 2
    pad = "<|vision_start|><|video_pad|><|vision_end|>"
    io_options = {"video": {"num_frames": 4}}
    with LLM(str(path), **OPTIONS, media_io_kwargs=io_options) as llm:
        (expected,) = llm.generate(
            f"t100 {pad} t110 t111 {pad} t101 t102",
            videos=[[film, url(SHORT)]],
            progress=io.StringIO(),
            **FIELDS,
        )
        content = [{"type": "video", "video": film}, words("t110 t111"), video(url(SHORT))]
        (offline,) = llm.chat(
            [{"role": "user", "content": content}], progress=io.StringIO(), **FIELDS
        )
    text = answer.json()["choices"][0]["message"]["content"]
    assert text == expected.choices[0].text == offline.choices[0].text
    assert answer.json()["usage"]["prompt_tokens"] == len(expected.prompt_token_ids)
    # Frames 0, 6, 12 and 19 of 10 a second: two together are in the middle of both.
    times = [WORDS[token] for token in expected.prompt_token_ids if token in range(30, 90)]
    assert times == ["<0.3 seconds>", "<1.5 seconds>", "<0.2 seconds>", "<1.2 seconds>"]
    models = httpx.get(f"{server.base_url}/v1/models", timeout=60).json()
    assert models["data"][0]["input_modalities"] == ["text", "image", "video"]


def test_jpeg_files_are_frames(server: ServerProcess, path: Path) -> None:
    images = [picture(10 * number) for number in range(4)]
    files = ",".join(base64.b64encode(jpeg(image)).decode() for image in images)
    answer = chat(server, video(f"data:video/jpeg;base64,{files}"), words("t110"))
    assert answer.status_code == 200, answer.text
    values = np.stack([np.asarray(image) for image in images])
    with LLM(str(path), **OPTIONS) as llm:
        content = [{"type": "video", "video": (values, 2.0)}, words("t110")]
        (offline,) = llm.chat(
            [{"role": "user", "content": content}], progress=io.StringIO(), **FIELDS
        )
    assert answer.json()["choices"][0]["message"]["content"] == offline.choices[0].text


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([video("data:;base64,YWJj")], "content[0]` cannot be read: it cannot be decoded"),
        ([video(url(clip(60, rate=10)))], "longer than 5 s"),
        ([video(url(SHORT))] * 3, "has 3 videos; at most 2"),
        ([{"type": "audio_url", "audio_url": "data:,"}], "this model takes image and video"),
        ([video("http://127.0.0.1:1/x")], "--allowed-media-domains"),
    ],
)
def test_refusals(server: ServerProcess, parts: list[dict[str, Any]], why: str) -> None:
    answer = chat(server, *parts)
    assert answer.status_code == 400, answer.text
    assert why in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "messages"
