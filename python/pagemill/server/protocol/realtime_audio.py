"""Settings of sound in sessions of `/v1/realtime`: those of OpenAI's API about input."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.transcription import MAX_PROMPT_CHARS, Language

AUDIO_RULES = FieldRules(unsupported={}, ignored=frozenset())


class AudioFormat(msgspec.Struct, kw_only=True, frozen=True):
    """16-bit PCM in little-endian order, or G.711 in one of its laws; one channel. `rate`, samples
    a second, is for PCM; None: 24,000."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: Annotated[int, Meta(ge=8_000, le=48_000)] | None = None


class InputTranscription(msgspec.Struct, kw_only=True, frozen=True):
    """What is said is written down, by `model` (None: that of the session)."""

    model: Annotated[str, Meta(max_length=512)] | None = None
    language: Language | None = None
    prompt: Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)] = ""


class TurnDetection(msgspec.Struct, kw_only=True, frozen=True):
    """How turns are found: `turn_detector.TurnDetector` says what the first three numbers mean.
    A turn cancels the response in progress (`interrupt_response`), and at its end begins one
    (`create_response`)."""

    type: Literal["server_vad"] = "server_vad"
    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=5_000)] = 300
    silence_duration_ms: Annotated[int, Meta(ge=100, le=60_000)] = 500
    create_response: bool = True
    interrupt_response: bool = True


class AudioInput(msgspec.Struct, kw_only=True, frozen=True):
    """Of the audio buffer. `transcription` None: nothing is written down; `turn_detection` None:
    the client says where turns end."""

    format: AudioFormat = AudioFormat()
    transcription: InputTranscription | None = None
    turn_detection: TurnDetection | None = TurnDetection()


class AudioSettings(msgspec.Struct, kw_only=True, frozen=True):
    """Of a session; answers are text."""

    input: AudioInput = AudioInput()


class AudioField(msgspec.Struct, kw_only=True, frozen=True):
    """The field of a session with the settings, for refusals to name it."""

    audio: AudioSettings = AudioSettings()
