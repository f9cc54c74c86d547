"""Audio files: what is read of them, how it is resampled, and what is refused."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from pagemill.config import MediaConfig
from pagemill.render.errors import RenderError
from pagemill.render.media.audio_files import AudioFiles
from pagemill.render.media.data_url import audio_url, data_of
from pagemill.render.media.media_files import open_files
from pagemill.render.testing.stops import LateStop

RATE = 16_000
FILES = AudioFiles(max_bytes=2**20, max_seconds=2)
FILES_OF_5_S = AudioFiles(max_bytes=2**20, max_seconds=5)


def tone(seconds: float = 0.5, rate: int = 16_000) -> np.ndarray:
    """440 Hz."""
    times = np.arange(int(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


def file_of(samples: np.ndarray, rate: int = 16_000, kind: str = "WAV", subtype: str = "") -> bytes:
    """A file of samples [samples] or [samples, channels]."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype or None)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype", "bound"),
    [
        ("WAV", "FLOAT", 0),
        ("WAV", "PCM_16", 1e-4),
        ("FLAC", "", 1e-4),
        ("OGG", "VORBIS", 0.05),
        ("OGG", "OPUS", 0.05),
        ("MP3", "", 0.05),
    ],
)
def test_formats(kind: str, subtype: str, bound: float):
    audio = FILES.read(file_of(tone(), kind=kind, subtype=subtype))
    assert audio.kind == "audio" and audio.values.dtype == np.float32
    # Some formats have silence around.
    assert abs(len(audio.values) - 8000) <= (1200 if kind in ("MP3", "OGG") else 0)
    middle, expected = audio.values[2000:6000], tone()[2000:6000]
    if kind in ("WAV", "FLAC"):
        np.testing.assert_allclose(middle, expected, atol=bound)
    assert abs(np.abs(middle).max() - 0.4) < 0.05
    assert np.abs(np.fft.rfft(middle)).argmax() == 110, "440 Hz"


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_rates(rate: int):
    audio = FILES.read(file_of(tone(1.0, rate), rate, subtype="FLOAT"))
    assert len(audio.values) == 16_000
    np.testing.assert_allclose(audio.values[1000:-1000], tone(1.0)[1000:-1000], atol=1e-3)
    opened = FILES.read_opened((tone(1.0, rate), rate))
    np.testing.assert_allclose(opened.values, audio.values, atol=1e-6)


def test_channels_are_averaged():
    both = np.stack([tone(), np.zeros_like(tone())], axis=1)
    for audio in (FILES.read(file_of(both, subtype="FLOAT")), FILES.read_opened((both, 16_000))):
        np.testing.assert_allclose(audio.values, tone() / 2, atol=1e-6)


def test_resampling_in_blocks_is_that_of_the_whole():
    samples = np.random.default_rng(0).uniform(-1, 1, 88_200).astype(np.float32)
    audio = FILES.read(file_of(samples, 44_100, subtype="FLOAT"))
    expected = soxr.resample(samples, 44_100, 16_000)
    np.testing.assert_allclose(audio.values, expected, atol=1e-6)


def test_louder_samples_are_clipped():
    samples = np.array([3e38, -1e20, 0.5, 1.25], np.float32)
    for audio in (
        FILES.read(file_of(samples, subtype="FLOAT")),
        FILES.read_opened((samples, RATE)),
    ):
        np.testing.assert_array_equal(audio.values, [1, -1, 0.5, 1])


def test_the_rate_of_a_file_does_not_decide_what_is_kept():
    """While it is decoded, either."""
    data = file_of(np.zeros((25 * 2**16, 1), np.int16), 655_350, "FLAC", "PCM_16")
    FILES_OF_5_S.read(data)  # once, so that modules are loaded
    tracemalloc.start()
    audio = FILES_OF_5_S.read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(audio.values) == pytest.approx(25 * 2**16 * RATE / 655_350, abs=2)
    assert peak < 2**21, "all samples at the file's rate have 6.5 MB"


def unmeasured_flac() -> bytes:
    """Of an encoder that wrote to a pipe."""
    data = bytearray(file_of(tone(), kind="FLAC"))
    data[21] &= 0xF0  # 36 bits: the number of samples
    data[22:26] = bytes(4)
    return bytes(data)


def test_an_empty_file_has_no_samples():
    assert FILES.read(file_of(tone(0))).values.shape == (0,)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be decoded; files of type WAV, FLAC"),
        (b"RIFF0000WAVE", "cannot be decoded"),
        (b"ID3" + bytes(100), "cannot be decoded"),
        (file_of(tone(), kind="AIFF"), "cannot be decoded"),
        (file_of(tone(2.1)), "longer than 2 s"),
        (file_of(tone(2.1), kind="MP3"), "longer than 2 s"),
        (file_of(np.zeros((10, 33))), "33 channels"),
        (file_of(tone(), 1_000), "1000 samples a second"),
        (file_of(np.zeros((30_000, 32), np.int16)), "more than 768000 samples in its channels"),
        (file_of(np.array([0, np.nan]), subtype="FLOAT"), "samples that are not finite"),
        (file_of(np.array([0, -np.inf]), subtype="DOUBLE"), "samples that are not finite"),
        (unmeasured_flac(), "does not say how long it is"),
    ],
)
def test_refusals(data: bytes, why: str):
    with pytest.raises(RenderError, match=why):
        FILES.read(data)


@pytest.mark.parametrize(
    ("samples", "rate", "why"),
    [
        (tone(2.1), 16_000, "longer than 2 s"),
        (tone(), 1, "1 samples a second"),
        (np.zeros((4, 33)), 16_000, "33 channels"),
        (np.zeros((30_000, 32)), 16_000, "more than 768000 samples in its channels"),
        (np.array([0, np.nan]), 16_000, "not finite"),
        (np.array([0, np.inf]), 16_000, "not finite"),
        (np.zeros((2, 2, 2)), 16_000, r"\[samples, channels\], .* got float64 \[2, 2, 2\]"),
        (np.zeros(9, np.int16), 16_000, r"from -1 to 1, got int16 \[9\]"),
    ],
)
def test_refused_samples(samples: np.ndarray, rate: int, why: str):
    with pytest.raises(RenderError, match=why):
        FILES.read_opened((samples, rate))


def test_lengths_in_headers_are_not_believed():
    """A header that says less than there is, and one that says more than memory holds."""
    data = bytearray(file_of(tone(2.1)))
    at = data.index(b"data") + 4
    for length in (2**32 - 1, 2**31):
        data[at : at + 4] = length.to_bytes(4, "little")
        with pytest.raises(RenderError, match="longer than 2 s"):
            FILES.read(bytes(data))


SETTINGS: dict[str, Any] = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80}
QWEN3_ASR = {"feature_extractor_type": "Qwen3ASRFeatureExtractor", "min_length": 8000}

GRANITE_SPEECH = {
    "feature_extractor_type": "GraniteSpeechFeatureExtractor",
    "melspec_kwargs": {
        "sample_rate": 16000,
        "n_fft": 512,
        "win_length": 400,
        "hop_length": 160,
        "n_mels": 80,
    },
}

COHERE_ASR = {"feature_extractor_type": "CohereAsrFeatureExtractor", "dither": 1e-5}
GEMMA4 = {"feature_extractor_type": "Gemma4AudioFeatureExtractor", "feature_size": 128}

MOSS_TRANSCRIBE: dict[str, Any] = {
    "processor_class": "MossTranscribeDiarizeProcessor",
    "feature_extractor": {"feature_extractor_type": "MossTranscribeDiarizeFeatureExtractor"},
    "audio_merge_size": 4,
}
PHI4 = {"feature_extractor_type": "Phi4MultimodalFeatureExtractor", "n_fft": 512}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("preprocessor_config.json", SETTINGS),
        ("processor_config.json", {"feature_extractor": SETTINGS}),
        ("preprocessor_config.json", QWEN3_ASR),
        ("processor_config.json", {"audio_processor": GRANITE_SPEECH}),
        ("preprocessor_config.json", PHI4),
        ("processor_config.json", {"feature_extractor": GEMMA4}),
        ("preprocessor_config.json", COHERE_ASR),
        ("processor_config.json", MOSS_TRANSCRIBE),
    ],
)
def test_readers_of_models(file: str, content: dict[str, Any], tmp_path: Path):
    (tmp_path / file).write_text(json.dumps(content))
    config = MediaConfig(max_audio_bytes=2000, max_audio_seconds=3)
    assert open_files("audio", config, tmp_path, 10) == AudioFiles(2000, 3)


def test_settings_of_images_beside_audio(tmp_path: Path):
    content = {"feature_extractor": GEMMA4, "image_processor": {"max_soft_tokens": 280}}
    (tmp_path / "processor_config.json").write_text(json.dumps(content))
    config = MediaConfig(mm_processor_kwargs={"max_soft_tokens": 70})
    assert isinstance(open_files("audio", config, tmp_path, 10), AudioFiles)


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({"feature_extractor_type": "Other"}, {}, "'Other'; known: .*, WhisperFeatureExtractor"),
        ({"sampling_rate": 8000}, {}, "sampling_rate of its feature extractor must be 16000"),
        ({"hop_length": 100}, {}, "hop_length"),
        (QWEN3_ASR | {"min_length": 0}, {}, "min_length of its feature extractor must be 8000"),
        (GEMMA4 | {"mel_floor": 1e-5}, {}, "mel_floor of its feature extractor"),
        (GEMMA4 | {"per_bin_mean": [1.0]}, {}, "per_bin_mean of its feature"),
        (
            COHERE_ASR | {"preemphasis": 0.9},
            {},
            "preemphasis of its feature extractor must be 0.97",
        ),
        (PHI4 | {"n_fft": 400}, {}, "n_fft of its feature extractor must be 512"),
        (GRANITE_SPEECH | {"melspec_kwargs": {}}, {}, "melspec_kwargs of its feature extractor"),
        (MOSS_TRANSCRIBE["feature_extractor"] | {"chunk_length": 20}, {}, "chunk_length of its"),
        ({}, {"mm_processor_kwargs": {"a": 1}}, "has no settings"),
    ],
)
def test_models_with_other_extractors(
    changes: dict[str, Any], options: dict[str, Any], why: str, tmp_path: Path
):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(SETTINGS | changes))
    with pytest.raises(RenderError, match=why):
        open_files("audio", MediaConfig(**options), tmp_path, 10)


def test_what_is_between_tokens_of_audio(tmp_path: Path):
    content = MOSS_TRANSCRIBE | {"time_marker_every_seconds": 5}
    (tmp_path / "processor_config.json").write_text(json.dumps(content))
    with pytest.raises(RenderError, match="time_marker_every_seconds of its processor must be 2"):
        open_files("audio", MediaConfig(), tmp_path, 10)


def test_files_in_parts():
    assert data_of(audio_url({"data": "YWJj", "format": "wav"}), 3) == b"abc"
    assert audio_url({"data": ""}) == audio_url({"format": "wav"}) == ""


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_decoding_ends_with_its_request(kind: str):
    data = file_of(tone(12, 48_000), 48_000, kind)
    files, whole = AudioFiles(2**22, 20), LateStop()
    files.read(data, whole)
    assert whole.asked > 9, "more than once for each of 9 blocks"
    for at in (0, whole.asked // 2):
        stop = LateStop(at)
        with pytest.raises(RenderError):
            files.read(data, stop)
        assert stop.asked - at < 40, "it reads on"
