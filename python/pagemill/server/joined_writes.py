"""A response's head and the first part of its body in one write.

    writes = JoinedWrites(transport, loop)      # of one connection
    writes.write(head)                          # waits for what follows, until the loop's next turn
    writes.write(body)                          # writes both
    writes.response_ended()

uvicorn writes them one after the other. Most responses are small, and a write to a socket costs as
much as all that a refusal needs besides; a client that is woken by the head has to be woken again.
"""

from __future__ import annotations

import asyncio

_MAX_JOINED_BYTES = 64 * 1024  # copying more costs as much as a write


class JoinedWrites:
    """The methods of a transport by which `RequestResponseCycle` writes."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._begins = True  # what is written next begins a response
        self._held = b""
        self._flush: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Writes `data`, in order; the beginning of a response within the loop's next turn."""
        if self._begins:
            self._begins = False
            self._held = data
            self._flush = self._loop.call_soon(self.flush)
        elif not self._held:
            self._transport.write(data)
        elif len(data) <= _MAX_JOINED_BYTES:
            self._held += data
            self.flush()
        else:
            self.flush()
            self._transport.write(data)

    def flush(self) -> None:
        """Writes what waits."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def response_ended(self) -> None:
        """What is written next begins another response."""
        self.flush()
        self._begins = True

    def is_closing(self) -> bool:
        """Whether the connection is closed, or is when all is written."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection once all is written."""
        self.flush()
        self._transport.close()
