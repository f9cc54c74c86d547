"""Formats of sound, with soundfile as the reference."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import soundfile

from pagemill.server.errors import ApiError
from pagemill.server.protocol.realtime_audio import AudioFormat
from pagemill.server.realtime.sound import HEADER_BYTES, rate_of, samples_of, wav_file


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(("name", "subtype"), [("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")])
def test_g711(name: str, subtype: str) -> None:
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes), dtype="int16", format="RAW", subtype=subtype, samplerate=8000, channels=1
    )
    sound_format = AudioFormat(type=name)  # pyright: ignore[reportArgumentType]
    found = samples_of(encoded(codes), sound_format)
    assert found.dtype == np.int16 and found.tolist() == expected.tolist()
    assert rate_of(sound_format) == 8_000


def test_pcm() -> None:
    samples = np.array([0, 1, -1, 32767, -32768], np.int16)
    found = samples_of(encoded(samples.astype("<i2").tobytes()), AudioFormat())
    assert found.dtype == np.int16 and found.tolist() == samples.tolist()
    assert rate_of(AudioFormat()) == 24_000 and rate_of(AudioFormat(rate=16_000)) == 16_000


@pytest.mark.parametrize("audio", ["AA*A", "AAA", "é", encoded(b"abc")])
def test_what_is_no_sound(audio: str) -> None:
    with pytest.raises(ApiError) as refused:
        samples_of(audio, AudioFormat())
    assert refused.value.status == 400 and refused.value.param == "audio"


def test_a_file() -> None:
    samples = np.arange(-50, 50, dtype=np.int16) * 300
    file = wav_file(samples.tobytes(), 24_000)
    found, rate = soundfile.read(io.BytesIO(file), dtype="int16")
    assert rate == 24_000 and found.tolist() == samples.tolist()
    assert file[HEADER_BYTES:] == samples.tobytes()
