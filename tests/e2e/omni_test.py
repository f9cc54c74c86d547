"""Images, videos and audio in one message over HTTP: a server with an encoder for each answers as
`transformers` does with what its processors make of them. So it does with the sound of a video."""

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
import soundfile
from pagemill.config import MediaConfig
from pagemill.engine.llm import LLM
from pagemill.render.media.media_files import open_files
from pagemill.render.testing.clips import Sound, clip, tone
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Whitespace
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.e2e.server_process import NAME, ServerProcess, serve
from tests.media.audio_models import audio
from tests.media.media_model import MediaTestModel
from tests.media.omni_models import AUDIO, AUDIO_ID, BINS, IMAGE_ID, VIDEO_ID, omni_model

TEMPLATE = (
    "{% for message in messages %}t20 {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %} t5 <image> t6 "
    "{% elif part['type'] == 'video' %} t5 <video> t6 "
    "{% elif part['type'] == 'audio' %} <|audio_bos|> <audio> <|audio_eos|> "
    "{% else %} {{ part['text'] }} {% endif %}"
    "{% endfor %} t21 {% endfor %}t22"
)
WORDS = {
    IMAGE_ID: "<image>",
    VIDEO_ID: "<video>",
    AUDIO_ID: "<audio>",
    AUDIO[0]: "<|audio_bos|>",
    AUDIO[2]: "<|audio_eos|>",
}
PROCESSOR: dict[str, Any] = {"patch_size": 4, "min_pixels": 256, "max_pixels": 4096}
OPTIONS = {
    "max_model_len": 300,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
FIELDS = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
SOUND = audio(1, 4000)
PICTURE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8))


def image_part() -> dict[str, Any]:
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def audio_part() -> dict[str, Any]:
    """A WAV file, without a loss."""
    file = io.BytesIO()
    soundfile.write(file, SOUND, 16_000, format="WAV", subtype="FLOAT")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    path = tmp_path_factory.mktemp("omni")
    model = omni_model("qwen2_5_omni", path, WORDS)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    settings = PROCESSOR | {
        "image_processor_type": "Qwen2VLImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": BINS,
        "processor_class": "Qwen2_5OmniProcessor",
    }
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    return model


@pytest.fixture(scope="module", name="server")
def _server(
    model: MediaTestModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    with serve(str(model.path), tmp_path_factory.mktemp("log"), options) as server:
        yield server


def chat(server: ServerProcess, *parts: dict[str, Any], **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": list(parts)}]
    body = {"model": NAME, "messages": messages, **FIELDS, **fields}
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)


def test_a_message_with_an_image_and_audio(server: ServerProcess, model: MediaTestModel) -> None:
    parts = [audio_part(), {"type": "text", "text": "t30 t31"}, image_part()]
    answer = chat(server, *parts).json()
    found = Qwen2VLImageProcessorPil(**PROCESSOR)(PICTURE, return_tensors="np")
    patches = found["pixel_values"], tuple(found["image_grid_thw"][0])
    with LLM(str(model.path), **OPTIONS) as llm:
        (offline,) = llm.chat([{"role": "user", "content": parts}], **FIELDS)
    model.check(offline, [SOUND, patches])
    assert answer["choices"][0]["message"]["content"] == offline.choices[0].text
    assert answer["usage"]["prompt_tokens"] == len(offline.prompt_token_ids)
    models = httpx.get(f"{server.base_url}/v1/models", timeout=60).json()
    assert {"text", "image", "audio"} <= set(models["data"][0]["input_modalities"])


def test_the_sound_of_a_video(server: ServerProcess, model: MediaTestModel) -> None:
    samples = tone(1.0)
    data = clip(4, (64, 64), rate=2, kind="matroska", sound=Sound(samples))
    url = f"data:video/x-matroska;base64,{base64.b64encode(data).decode()}"
    parts = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": "t30 t31"}]
    settings = {"use_audio_in_video": True}
    answer = chat(server, *parts, mm_processor_kwargs=settings).json()
    silent = chat(server, *parts).json()
    film = open_files("video", MediaConfig(), model.path, 64).read(data)
    frames = film.values, film.grid, film.times
    with LLM(str(model.path), **OPTIONS) as llm:
        messages = [{"role": "user", "content": parts}]
        (heard,) = llm.chat(messages, mm_processor_kwargs=settings, **FIELDS)
        (seen,) = llm.chat(messages, **FIELDS)
    model.check(heard, [(*frames, samples[0])])
    model.check(seen, [frames])
    for answered, offline in ((answer, heard), (silent, seen)):
        assert answered["choices"][0]["message"]["content"] == offline.choices[0].text
        assert answered["usage"]["prompt_tokens"] == len(offline.prompt_token_ids)
    assert heard.prompt_token_ids.count(AUDIO_ID) == 25
    refused = chat(server, *parts, mm_processor_kwargs={"fps": 1})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == "mm_processor_kwargs"


def test_an_encoder_whose_media_are_refused_is_left_out(
    model: MediaTestModel, tmp_path: Path
) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    options.append('--limit-mm-per-prompt={"image": 0, "video": 0}')
    with serve(str(model.path), tmp_path, options) as server:
        assert chat(server, audio_part()).status_code == 200
        refused = chat(server, image_part())
        message = refused.json()["error"]["message"]
        assert refused.status_code == 400 and "--limit-mm-per-prompt" in message
