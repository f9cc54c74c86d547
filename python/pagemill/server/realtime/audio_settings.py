"""Changes of a session's settings of sound, and what is refused of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.realtime_audio import AUDIO_RULES, AudioField, AudioInput
from pagemill.server.realtime.sound import rate_of

_LOGPROBS = "item.input_audio_transcription.logprobs"


def changed_audio(settings: AudioInput, sent: Mapping[str, Any]) -> AudioInput:
    """`settings` with what the session `sent` has: each of the fields of `audio.input` is replaced
    as a whole, and null turns it off.

    Raises:
        ApiError: 400 that names the setting.
    """
    if sent.get("include"):
        raise bad_request(f"`include`: {_LOGPROBS} are not known here; leave it out.", "include")
    audio = _object(sent.get("audio"), "audio")
    if audio.get("output") is not None:
        raise bad_request("`audio.output` is not supported: answers are text.", "audio")
    changes = _object(audio.get("input"), "audio.input")
    if changes.get("noise_reduction") is not None:
        raise _refused("noise_reduction", "audio is heard as it is sent; send null.")
    turns = _object(changes.get("turn_detection"), "audio.input.turn_detection")
    if turns.get("type", "server_vad") != "server_vad":
        raise _refused("turn_detection.type", "send `server_vad`, or no turn detection.")
    if turns.get("idle_timeout_ms") is not None:
        raise _refused("turn_detection.idle_timeout_ms", "send `response.create` when it is time.")
    merged: dict[str, Any] = {**cast(dict[str, Any], msgspec.to_builtins(settings))}
    for name in AudioInput.__struct_fields__:
        if name in changes:
            merged[name] = _present(changes[name])
    if merged["format"] is None:
        del merged["format"]
    found = decode_fields({"audio": {"input": merged}}, AudioField, AUDIO_RULES).audio.input
    if found.format.type != "audio/pcm" and found.format.rate not in (None, 8_000):
        raise _refused("format.rate", "of audio/pcmu and audio/pcma it is 8000.")
    return found


def shown_audio(settings: AudioInput) -> dict[str, Any]:
    """The field `audio` of a session with these settings."""
    shown = cast(dict[str, Any], msgspec.to_builtins(settings))
    shown["format"]["rate"] = rate_of(settings.format)
    return {"input": {**shown, "noise_reduction": None}}


def _object(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"`{name}` must be an object.", name.partition(".")[0])
    return cast(dict[str, Any], value)


def _present(value: Any) -> Any:
    """An object without nulls, which stand for defaults."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in cast(Any, value).items() if each is not None}


def _refused(field: str, why: str) -> ApiError:
    return bad_request(f"`audio.input.{field}` is not supported: {why}", "audio")
