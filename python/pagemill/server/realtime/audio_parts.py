"""Audio in items: what a client sends and sees, and what a conversation keeps of it.

A client sends a part of type `input_audio` with `audio`, base64 in the format of the session. The
conversation keeps it as a chat has it: a WAV file in base64.
"""

from __future__ import annotations

import base64
from typing import Any, cast

import msgspec

from pagemill.server.errors import bad_request
from pagemill.server.protocol.realtime_audio import AudioFormat
from pagemill.server.realtime.sound import HEADER_BYTES, rate_of, samples_of, wav_file
from pagemill.server.responses.input import Item

_AUDIO = "input_audio"
_HEADER_CHARS = HEADER_BYTES // 3 * 4
_PORTION = 3 * 2**16  # bytes that are encoded at a time: other threads wait as long


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
    """A turn of the user: a WAV file. Slow if it is long: not for the event loop."""
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


def num_bytes(item: Item) -> int:
    """The size of a kept item in JSON, about: its audio is not read."""
    files = [part[_AUDIO]["data"] for part in _parts(item) if _is_audio(part)]
    return len(msgspec.json.encode(shown_item(item))) + sum(map(len, files))


def set_transcript(item: Item, transcript: str) -> None:
    """Notes what is said in an item; nothing happens if it is no turn of sound."""
    first = _parts(item)[:1]
    if first and _is_audio(first[0]):
        first[0]["transcript"] = transcript


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
    starts = range(0, len(file), _PORTION)
    data = "".join(base64.b64encode(file[at : at + _PORTION]).decode() for at in starts)
    return {
        "type": _AUDIO,
        _AUDIO: {"data": data, "format": "wav"},
        "transcript": transcript,
    }


def _shown(part: Item, with_audio: bool) -> Item:
    shown: Item = {"type": _AUDIO, "transcript": part["transcript"]}
    if with_audio:
        shown["audio"] = part[_AUDIO]["data"][_HEADER_CHARS:]
    return shown
