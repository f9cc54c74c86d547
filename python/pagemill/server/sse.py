"""Server-sent events: their bytes, and how streams end."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pagemill.server.error_shapes import OPENAI, ErrorShape
from pagemill.server.errors import ApiError
from pagemill.server.protocol.sampling import StreamOptions

_END = b"[DONE]"
DONE = b"data: %b\n\n" % _END
HOLE = "\0"
"""What stands for the text of an `EventTemplate`."""

_encode = msgspec.json.Encoder().encode
_ENCODED_HOLE = _encode(HOLE)


def event(payload: bytes, name: str = "") -> bytes:
    """One event whose data is `payload`, which holds no line break (JSON never does)."""
    data = b"data: " + payload + b"\n\n"
    return b"event: %s\n%s" % (name.encode(), data) if name else data


def payloads(events: bytes) -> Iterator[bytes]:
    """The data of each of some complete events, except the end of a stream."""
    for each in events.split(b"\n\n"):
        payload = each.partition(b"data: ")[2]
        if payload and payload != _END:
            yield payload


class EventTemplate:
    """Events that differ in one text: what is around it is encoded once."""

    __slots__ = ("_after", "_before")

    def __init__(self, payload: msgspec.Struct, name: str = "") -> None:
        """`payload` has HOLE as its text, and nowhere else; `name` is the events' name."""
        self._before, self._after = event(_encode(payload), name).split(_ENCODED_HOLE)

    def event(self, text: str) -> bytes:
        """The event with `text`."""
        return self._before + _encode(text) + self._after


def named_event(payload: msgspec.Struct) -> bytes:
    """One event that has the tag of `payload` as its name."""
    return b"event: %b\ndata: %b\n\n" % (
        str(payload.__struct_config__.tag).encode(),
        _encode(payload),
    )


class NumberedTemplate:
    """Named events that differ in one text and in their number."""

    __slots__ = ("_after", "_before")

    def __init__(self, payload: msgspec.Struct) -> None:
        """`payload` has HOLE as its text, and 0 as its last field, the number."""
        self._before, after = named_event(payload).split(_ENCODED_HOLE)
        self._after = after.removesuffix(b"0}\n\n")

    def event(self, text: str, number: int) -> bytes:
        """The event with `text` and `number`."""
        return b"%b%b%b%d}\n\n" % (self._before, _encode(text), self._after, number)


def usage_events(options: StreamOptions | None) -> tuple[bool, bool]:
    """Where a stream has `usage`: in a last event of its own, and in every event.

    `include_usage: false` means no usage at all.
    """
    if options is None or not options.include_usage:
        return False, False
    return True, options.continuous_usage_stats


def last_events(usage: msgspec.Struct | None, failure: ApiError | None) -> bytes:
    """The end of a stream of OpenAI's API: the chunk with the usage or the error, and `[DONE]`."""
    if failure is not None:
        return failed_stream(failure, OPENAI)
    return DONE if usage is None else event(_encode(usage)) + DONE


def failed_stream(failure: ApiError, shape: ErrorShape) -> bytes:
    """The end of a stream that fails: the error object, and `[DONE]` unless events have names.

    The status line is long gone when a stream fails, so this is the only way to say it.
    """
    ending = b"" if shape.event_name else DONE
    return event(shape.encoded(failure), shape.event_name) + ending
