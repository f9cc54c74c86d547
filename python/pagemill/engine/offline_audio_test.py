"""Audio of an `LLM`: what it may be, where it stands in messages, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from pagemill.config import MediaConfig
from pagemill.engine.offline_media import OfflineMedia
from pagemill.engine.outputs import EngineError

SAMPLES = np.linspace(-0.5, 0.5, 800, dtype=np.float32)


def wav(samples: np.ndarray = SAMPLES) -> bytes:
    """A file of 16,000 samples a second, without a loss."""
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    return file.getvalue()


BASE64 = base64.b64encode(wav()).decode()
URL = f"data:audio/wav;base64,{BASE64}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = {"feature_extractor_type": "WhisperFeatureExtractor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "tone.wav").write_bytes(wav())
    return tmp_path


def opened(folder: Path, **options: Any) -> OfflineMedia:
    """Those of a model with an extractor in `folder`."""
    return OfflineMedia(MediaConfig(**options), folder, 16)


def test_files_urls_and_samples_are_the_same(folder: Path):
    path = folder / "tone.wav"
    sources = [path, str(path), URL, SAMPLES, (SAMPLES, 16_000)]
    for audio in opened(folder).all_prepared("audio", sources):
        assert audio.kind == "audio"
        np.testing.assert_array_equal(audio.values, SAMPLES)


def test_parts_of_messages(folder: Path):
    content = [
        {"type": "text", "text": "a"},
        {"type": "audio_url", "audio_url": {"url": URL}},
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
        {"type": "audio", "audio": (SAMPLES, 16_000)},
    ]
    messages, media = opened(folder).of_messages([{"role": "user", "content": content}])
    assert messages == [{"role": "user", "content": [content[0], *[{"type": "audio"}] * 3]}]
    assert len(media) == 3
    for audio in media:
        np.testing.assert_array_equal(audio.values, SAMPLES)


def test_kinds_are_counted_apart(folder: Path):
    media = opened(folder, limit_mm_per_prompt={"audio": 1, "image": 0})
    media.all_prepared("audio", [SAMPLES])
    with pytest.raises(EngineError, match="2 audios; at most 1"):
        media.all_prepared("audio", [SAMPLES, SAMPLES])
    part = {"type": "audio", "audio": SAMPLES}
    with pytest.raises(EngineError, match="2 audios; at most 1"):
        media.of_messages([{"role": "user", "content": [part]}] * 2)
    with pytest.raises(EngineError, match="1 images; at most 0"):
        media.all_prepared("image", [np.zeros((3, 4, 4), np.float32)])


@pytest.mark.parametrize(
    ("part", "options", "why"),
    [
        ({"type": "audio_url", "audio_url": "/etc/hostname"}, {}, "audio_url must be an https:"),
        ({"type": "input_audio", "input_audio": {"data": ""}}, {}, "must have a file in base64"),
        ({"type": "audio", "audio": "nowhere.wav"}, {}, "nowhere.wav cannot be read"),
        ({"type": "audio", "audio": (SAMPLES, 0)}, {}, "of 0 samples a second"),
        ({"type": "audio", "audio": np.zeros(900, np.int16)}, {}, "samples are int16"),
        ({"type": "audio_url", "audio_url": URL}, {"max_audio_bytes": 1024}, "1024 bytes"),
        (
            {"type": "audio", "audio": (np.zeros(33_000), 16_000)},
            {"max_audio_seconds": 2},
            "longer than 2 s",
        ),
    ],
)
def test_refusals(folder: Path, part: dict[str, Any], options: dict[str, Any], why: str):
    message = {"role": "user", "content": [part]}
    with pytest.raises(EngineError, match=why) as error:
        opened(folder, **options).of_messages([message])
    assert error.value.code == "INVALID_ARGUMENT" and "messages[0].content[0]" in str(error.value)
