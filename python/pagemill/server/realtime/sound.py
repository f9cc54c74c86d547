"""Sound as clients send it, as samples, and samples as a file.

    samples = samples_of(event.audio, settings.format)   # int16 [samples]
    data = wav_file(samples.tobytes(), rate_of(settings.format))

In here samples are int16 of one channel. Models have rates of their own: what reads the file
resamples it.
"""

from __future__ import annotations

import base64
import binascii
import struct

import numpy as np

from pagemill.server.errors import bad_request
from pagemill.server.protocol.realtime_audio import AudioFormat

SAMPLE_BYTES = 2
HEADER_BYTES = 54
"""Of `wav_file`: a multiple of 3, so that base64 of a file ends with that of its samples."""
_PCM_RATE = 24_000
_TELEPHONE_RATE = 8_000  # of G.711


def rate_of(sound_format: AudioFormat) -> int:
    """Samples a second."""
    if sound_format.type == "audio/pcm":
        return sound_format.rate or _PCM_RATE
    return _TELEPHONE_RATE


def samples_of(audio: str, sound_format: AudioFormat) -> np.ndarray:
    """What `audio` holds, base64 of sound in this format.

    Raises:
        ApiError: 400: it is not that.
    """
    try:
        data = base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("`audio` must be base64, with its padding.", "audio") from None
    if sound_format.type == "audio/pcmu":
        return _MU_LAW[np.frombuffer(data, np.uint8)]
    if sound_format.type == "audio/pcma":
        return _A_LAW[np.frombuffer(data, np.uint8)]
    if len(data) % SAMPLE_BYTES:
        raise bad_request(
            f"`audio` has {len(data)} bytes; a sample of audio/pcm has {SAMPLE_BYTES}: send whole"
            " samples.",
            "audio",
        )
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


def wav_file(samples: bytes | bytearray, rate: int) -> bytes:
    """A WAV file of `samples`, `rate` a second."""
    size = len(samples)
    form = struct.pack("<HHIIHH", 1, 1, rate, SAMPLE_BYTES * rate, SAMPLE_BYTES, 8 * SAMPLE_BYTES)
    return b"".join(
        (
            struct.pack("<4sI4s", b"RIFF", HEADER_BYTES - 8 + size, b"WAVE"),
            struct.pack("<4sI", b"fmt ", len(form)) + form,
            struct.pack("<4sI2x", b"JUNK", 2),
            struct.pack("<4sI", b"data", size),
            samples,
        )
    )


def _mu_law() -> np.ndarray:
    """Samples by code. Source: ITU-T G.711, table 2."""
    codes = ~np.arange(256) & 0xFF
    magnitudes = ((((codes & 0xF) << 3) + 0x84) << ((codes >> 4) & 7)) - 0x84
    return np.where(codes & 0x80, -magnitudes, magnitudes).astype(np.int16)


def _a_law() -> np.ndarray:
    """Samples by code. Source: ITU-T G.711, table 1."""
    codes = np.arange(256) ^ 0x55
    segments = (codes >> 4) & 7
    steps = ((codes & 0xF) << 4) + 8
    magnitudes = np.where(segments, (steps + 0x100) << np.maximum(segments - 1, 0), steps)
    return np.where(codes & 0x80, magnitudes, -magnitudes).astype(np.int16)


_MU_LAW, _A_LAW = _mu_law(), _a_law()
