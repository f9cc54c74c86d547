"""Audio files as samples of one channel at a model's rate.

files = AudioFiles.open(MediaConfig(), Path("Qwen2-Audio-7B-Instruct"))
samples = files.read(data).values     # f32 [samples], 16,000 a second
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import soundfile  # pyright: ignore[reportMissingTypeStubs]
import soxr  # pyright: ignore[reportMissingTypeStubs]

from pagemill.config import MediaConfig
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.media.stoppable_file import StoppableFile, check_wanted
from pagemill.render.special_tokens import read_json
from pagemill.render.stop import Stop

FORMATS = "WAV, FLAC, Ogg (Opus or Vorbis) and MP3"
_BEGINNINGS = (b"RIFF", b"fLaC", b"OggS", b"ID3")
_RATES = range(2_000, 768_001)  # samples a second that are resampled
_MAX_CHANNELS = 32
_BLOCK = 2**16  # samples of each channel that are decoded at a time
_UNKNOWN_FRAMES = 2**63 - 1  # what libsndfile says of FLAC that was written to a pipe
# Numbers that are decoded for a second of the longest file: of all channels.
_MAX_NUMBERS_A_SECOND = 2 * 192_000

# Settings that the log-mel frames of models are made with (models/audio/log_mel.py).
_SETTINGS = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "dither": 0.0}
# Likewise (models/audio/htk_mel.py).
_GRANITE_SETTINGS = {
    "sampling_rate": 16_000,
    "melspec_kwargs": {
        "sample_rate": 16_000,
        "n_fft": 512,
        "win_length": 400,
        "hop_length": 160,
        "n_mels": 80,
    },
}
# Likewise (models/audio/kaldi_mel.py).
_PHI4_SETTINGS = {
    "sampling_rate": 16_000,
    "n_fft": 512,
    "win_length": 400,
    "hop_length": 160,
    "preemphasis": 0.97,
    "mel_min_frequency": 0,
    "mel_max_frequency": 7690,
    "audio_compression_rate": 8,
    "audio_downsample_rate": 1,
    "audio_feat_stride": 1,
}
# Likewise (models/audio/gemma4_mel.py).
_GEMMA4_SETTINGS: Mapping[str, Any] = {
    "sampling_rate": 16_000,
    "feature_size": 128,
    "frame_length": 320,
    "frame_length_ms": 20.0,
    "hop_length": 160,
    "hop_length_ms": 10.0,
    "fft_length": 512,
    "fft_overdrive": False,
    "min_frequency": 0.0,
    "max_frequency": 8000.0,
    "preemphasis": 0.0,
    "dither": 0.0,
    "input_scale_factor": 1.0,
    "mel_floor": 1e-3,
    "per_bin_mean": None,
    "per_bin_stddev": None,
}
# Likewise (models/audio/normalized_mel.py); noise of 1e-5, its dither, is left out.
_COHERE_SETTINGS = {
    "sampling_rate": 16_000,
    "n_fft": 512,
    "win_length": 400,
    "hop_length": 160,
    "preemphasis": 0.97,
}
# By extractor; Qwen3-ASR's fills up audio (models/multimodal/qwen3_asr.py).
_EXTRACTORS: Mapping[str, Mapping[str, Any]] = {
    "CohereAsrFeatureExtractor": _COHERE_SETTINGS,
    "Gemma4AudioFeatureExtractor": _GEMMA4_SETTINGS,
    "GraniteSpeechFeatureExtractor": _GRANITE_SETTINGS,
    "MossTranscribeDiarizeFeatureExtractor": {**_SETTINGS, "chunk_length": 30},
    "Phi4MultimodalFeatureExtractor": _PHI4_SETTINGS,
    "Qwen3ASRFeatureExtractor": {**_SETTINGS, "min_length": 8000},
    "WhisperFeatureExtractor": _SETTINGS,
}
# By processor: what a family writes between tokens of audio.
_PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "MossTranscribeDiarizeProcessor": {
        "audio_tokens_per_second": 12.5,
        "audio_merge_size": 4,
        "time_marker_every_seconds": 2,
    },
}


@dataclass(frozen=True, slots=True)
class AudioFiles:
    """Implements `MediaFiles`. `max_seconds` of a file; `rate` in samples a second."""

    max_bytes: int
    max_seconds: float
    rate: int = 16_000

    @classmethod
    def open(cls, config: MediaConfig, folder: Path) -> AudioFiles:
        """See `open_files`."""
        stated = read_json(folder / "preprocessor_config.json")
        parts = read_json(folder / "processor_config.json")
        has_images = "image_processor_type" in stated or "image_processor" in parts
        if config.mm_processor_kwargs and not has_images:  # whose settings they would be
            raise RenderError("a processor of audio has no settings")
        settings = stated or _extractor(parts)
        kind = str(settings.get("feature_extractor_type"))
        if kind not in _EXTRACTORS:
            known = ", ".join(_EXTRACTORS)
            raise RenderError(f"feature_extractor_type is {kind[:60]!r}; known: {known}")
        for key, value in _EXTRACTORS[kind].items():
            if settings.get(key, value) != value:
                raise RenderError(f"{key} of its feature extractor must be {value}")
        for key, value in _PROCESSORS.get(str(parts.get("processor_class")), {}).items():
            if parts.get(key, value) != value:
                raise RenderError(f"{key} of its processor must be {value}")
        return cls(config.max_audio_bytes, config.max_audio_seconds)

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """See `MediaFiles.read`."""
        stop = stop or Stop()
        if not _is_known(data):
            raise _undecodable()
        try:
            with soundfile.SoundFile(StoppableFile(data, stop)) as file:
                self._check_form(file.samplerate, file.channels)
                if file.frames == _UNKNOWN_FRAMES:
                    raise RenderError("it does not say how long it is; write it anew, to a file")
                self._check_length(file.frames, file.samplerate, file.channels)
                return self._prepared(self._blocks(file, stop), file.samplerate)
        except RenderError:
            raise
        except Exception:  # decoders raise what they like
            raise _undecodable() from None

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """See `MediaFiles.read_opened`; samples [samples] or [samples, channels], and how many
        there are in a second."""
        samples, rate = media
        values = np.asarray(samples)
        if values.ndim not in (1, 2) or not np.issubdtype(values.dtype, np.floating):
            raise RenderError(
                "samples must be [samples, channels], numbers from -1 to 1, got"
                f" {values.dtype} {list(values.shape)}"
            )
        channels = values[:1].size or 1
        self._check_form(int(rate), channels)
        self._check_length(len(values), int(rate), channels)
        return self._prepared([values if values.ndim == 1 else values.mean(1)], int(rate))

    def mix(self, blocks: Iterable[tuple[int, np.ndarray]]) -> np.ndarray | None:
        """The sound of a video (`MixSound`), within the limits of audio.

        Raises:
          RenderError: it exceeds one, or its rate or its channels change.
        """
        following = iter(blocks)
        first = next(following, None)
        if first is None:
            return None
        rate, channels = first[0], len(first[1])
        self._check_form(rate, channels)

        def means() -> Iterator[np.ndarray]:
            samples = 0
            for own, block in chain([first], following):
                if (own, len(block)) != (rate, channels):
                    raise RenderError("the rate or the channels of its sound change")
                samples += block.shape[1]
                self._check_length(samples, rate, channels)
                yield block.mean(axis=0)

        return self._prepared(means(), rate).values

    def _check_form(self, rate: int, channels: int) -> None:
        if rate not in _RATES or channels > _MAX_CHANNELS:
            raise RenderError(
                f"it has {channels} channels of {rate} samples a second; at most {_MAX_CHANNELS} of"
                f" {_RATES.start} to {_RATES.stop - 1} are taken"
            )

    def _check_length(self, frames: int, rate: int, channels: int) -> None:
        """`frames` are samples of each channel."""
        if frames > self.max_seconds * rate:
            raise RenderError(f"it is longer than {self.max_seconds:g} s; send a shorter one")
        most = int(self.max_seconds * _MAX_NUMBERS_A_SECOND)
        if frames * channels > most:
            raise RenderError(
                f"it has more than {most} samples in its channels; send it with fewer of both"
            )

    def _blocks(self, file: soundfile.SoundFile, stop: Stop) -> Iterator[np.ndarray]:
        """The mean of all channels. What a header says of a length need not be true."""
        frames = 0
        for block in file.blocks(_BLOCK, dtype="float32", always_2d=True):
            check_wanted(stop)
            frames += len(block)
            self._check_length(frames, file.samplerate, file.channels)
            yield block.mean(axis=1)

    def _prepared(self, blocks: Iterable[np.ndarray], rate: int) -> PreparedMedia:
        """`blocks` [samples] follow each other, `rate` a second. Only resampled ones are kept."""
        stream = None
        if rate != self.rate:
            stream = soxr.ResampleStream(rate, self.rate, num_channels=1, dtype="float32")
        kept = [_resampled(stream, _checked(block)) for block in blocks]
        if stream is not None:
            kept.append(stream.resample_chunk(np.zeros(0, np.float32), last=True))
        return PreparedMedia("audio", np.concatenate([np.zeros(0, np.float32), *kept]))


def _extractor(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of an extractor beside those of other parts of a processor."""
    return as_object(parts.get("feature_extractor") or parts.get("audio_processor")) or {}


def _checked(samples: np.ndarray) -> np.ndarray:
    """Samples, float32 from -1 to 1; louder ones are clipped.

    Raises:
        RenderError: some are not finite.
    """
    if not np.isfinite(samples).all():
        raise RenderError("it has samples that are not finite")
    return np.clip(samples, -1, 1).astype(np.float32)


def _resampled(stream: soxr.ResampleStream | None, samples: np.ndarray) -> np.ndarray:
    return samples if stream is None else stream.resample_chunk(samples)


def _is_known(data: bytes) -> bool:
    """Whether it begins as a file of FORMATS; parsers of others see nothing of it."""
    is_mpeg = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    return is_mpeg or data.startswith(_BEGINNINGS)


def _undecodable() -> RenderError:
    return RenderError(f"it cannot be decoded; files of type {FORMATS} are taken")
