"""How a session says what is transcribed."""

from __future__ import annotations

from typing import Any, Protocol

from pagemill.server.protocol.realtime import EventError
from pagemill.server.protocol.usage import Usage
from pagemill.server.realtime.response import Say

_PREFIX = "conversation.item.input_audio_transcription"


class TranscriptEvents(Protocol):
    """Says what is transcribed of the item with an id."""

    def delta(self, item_id: str, text: str) -> None:
        """`text` follows."""
        ...

    def completed(self, item_id: str, text: str, duration_s: float, usage: Usage) -> None:
        """All of it, and what it took."""
        ...

    def failed(self, item_id: str, error: EventError) -> None:
        """It was refused, or failed."""
        ...


class ItemEvents:
    """Implements `TranscriptEvents` as OpenAI's API does."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def delta(self, item_id: str, text: str) -> None:
        """See `TranscriptEvents.delta`."""
        self._say_of(item_id, "delta", {"delta": text})

    def completed(self, item_id: str, text: str, duration_s: float, usage: Usage) -> None:
        """See `TranscriptEvents.completed`."""
        del usage
        seconds = {"type": "duration", "seconds": round(duration_s, 3)}
        self._say_of(item_id, "completed", {"transcript": text, "usage": seconds})

    def failed(self, item_id: str, error: EventError) -> None:
        """See `TranscriptEvents.failed`."""
        self._say_of(item_id, "failed", {"error": error})

    def _say_of(self, item_id: str, what: str, fields: dict[str, Any]) -> None:
        self._say(f"{_PREFIX}.{what}", {"item_id": item_id, "content_index": 0, **fields})


class StreamEvents:
    """Implements `TranscriptEvents` as the reference system does."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def delta(self, item_id: str, text: str) -> None:
        """See `TranscriptEvents.delta`."""
        del item_id
        self._say("transcription.delta", {"delta": text})

    def completed(self, item_id: str, text: str, duration_s: float, usage: Usage) -> None:
        """See `TranscriptEvents.completed`."""
        del item_id, duration_s
        self._say("transcription.done", {"text": text, "usage": usage})

    def failed(self, item_id: str, error: EventError) -> None:
        """See `TranscriptEvents.failed`."""
        del item_id
        self._say("error", {"error": error})
