"""What an endpoint's handler returns; the transport encodes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not JSON."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of server-sent events, encoded where they arise: one per token is the hot path.

    Items of `source` are complete events (one or several, concatenated). The transport calls
    `close` when the response is over, however it ends, and then `source.aclose`: a source that was
    never started has no `finally` to run.
    """

    source: AsyncGenerator[bytes, None]
    close: Callable[[], None]


Answer = msgspec.Struct | Text | Events
