"""Messages of a stream: four bytes of size, little-endian, then the message."""

from __future__ import annotations

from collections.abc import Iterator

from pagemill.engine.messages import MAX_FRAME_BYTES
from pagemill.engine.outputs import EngineError

_HEADER_BYTES = 4


def frame(message: bytes) -> bytes:
    """The frame of an encoded message.

    Raises:
        EngineError: it is too large for one.
    """
    if len(message) > MAX_FRAME_BYTES:
        raise EngineError(
            "INVALID_ARGUMENT",
            f"A message to the engine of {len(message)} bytes is more than {MAX_FRAME_BYTES};"
            " send fewer or shorter prompts at a time.",
        )
    return len(message).to_bytes(_HEADER_BYTES, "little") + message


class FrameReader:
    """Cuts what arrives into messages. Keeps at most one incomplete frame."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete with `data`.

        Raises:
            EngineError: a frame is larger than the limit.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER_BYTES:
            size = int.from_bytes(self._buffer[:_HEADER_BYTES], "little")
            if size > self._limit:
                raise EngineError("INVALID_ARGUMENT", f"a frame of {size} bytes is too large")
            if len(self._buffer) < _HEADER_BYTES + size:
                return
            message = bytes(self._buffer[_HEADER_BYTES : _HEADER_BYTES + size])
            del self._buffer[: _HEADER_BYTES + size]
            yield message
