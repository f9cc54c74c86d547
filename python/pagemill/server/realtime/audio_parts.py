"""Audio in items: what a client sends and sees, and what a conversation keeps of it.

A client sends a part of type `input_audio` with `audio`, base64 in the format of the session. The
conversation keeps it as a chat has it: a WAV file in base64.
"""

from __future__ import annotations

import base64
from typing import Any, cast

from pagemill.server.errors import bad_request
from pagemill.server.protocol.realtime_audio import AudioFormat
from pagemill.server.realtime.sound import HEADER_BYTES, rate_of, samples_of, wav_file
from pagemill.server.responses.input import Item

_AUDIO = "input_audio"


def has_audio(item: Any) -> bool:
    """Whether an item, which need not be valid, has audio."""
    return any(_is_audio(part) for part in _parts(item))


def kept_item(sent: Item, sound_format: AudioFormat) -> Item:
    """The item of a client as the conversation keeps it.

    Raises:
        ApiError: 400: its audio is not in this format.
    """
    parts = [_kept(part, sound_format) if _is_audio(part) else part for part in _parts(sent)]
    return {**sent, "content": parts}


def audio_item(item_id: str, file: bytes) -> Item:
    """A turn of the user: a WAV file."""
    return {
        "type": "message",
        "id": item_id,
        "role": "user",
        "status": "completed",
        "content": [_part(file, None)],
    }


def shown_item(item: Item, *, with_audio: bool = False) -> Item:
    """A kept item as the client sees it; `with_audio`: as 16-bit PCM at the rate that it had."""
    if not has_audio(item):
        return {"object": "realtime.item", **item}
    parts = [_shown(part, with_audio) if _is_audio(part) else part for part in _parts(item)]
    return {"object": "realtime.item", **item, "content": parts}


def _parts(item: Any) -> list[Any]:
    content = cast(Item, item).get("content") if isinstance(item, dict) else None
    return cast(list[Any], content) if isinstance(content, list) else []


def _is_audio(part: Any) -> bool:
    return isinstance(part, dict) and cast(Item, part).get("type") == _AUDIO


def _kept(part: Item, sound_format: AudioFormat) -> Item:
    audio, transcript = part.get("audio"), part.get("transcript")
    if not isinstance(audio, str) or not audio:
        raise bad_request("`audio` of a part of type `input_audio` must be base64.", "item")
    if not isinstance(transcript, str | None):
        raise bad_request("`transcript` of a part of type `input_audio` must be a string.", "item")
    samples = samples_of(audio, sound_format)
    return _part(wav_file(samples.tobytes(), rate_of(sound_format)), transcript)


def _part(file: bytes, transcript: str | None) -> Item:
    data = base64.b64encode(file).decode()
    return {
        "type": _AUDIO,
        _AUDIO: {"data": data, "format": "wav"},
        "transcript": transcript,
    }


def _shown(part: Item, with_audio: bool) -> Item:
    shown: Item = {"type": _AUDIO, "transcript": part["transcript"]}
    if with_audio:
        samples = base64.b64decode(part[_AUDIO]["data"])[HEADER_BYTES:]
        shown["audio"] = base64.b64encode(samples).decode()
    return shown
