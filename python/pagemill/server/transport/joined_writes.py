"""The head of a response and its body in one write, if both are there.

    cycle.transport = JoinedWrites(cycle)

uvicorn writes one after the other, and the loop passes each to the system: two packets, and a
client that is woken twice.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_MAX_JOINED_BYTES = 64 * 1024  # copying more costs as much as a write


class JoinedWrites:
    """The methods of a transport by which one `RequestResponseCycle` writes.

    A head that states the body's length waits for the body's first part. That of a stream does not:
    its first event may take long.
    """

    __slots__ = ("_begun", "_cycle", "_held", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._begun = False  # the head was written, or is held
        self._held = b""

    @classmethod
    def install(cls, cycle: RequestResponseCycle) -> None:
        """Lets `cycle` write by such an object."""
        cycle.transport = cast(asyncio.Transport, cls(cycle))

    def write(self, data: bytes) -> None:
        """Writes `data` behind what is held, or holds it."""
        cycle = self._cycle
        if cycle.response_started and not self._begun:
            self._begun = True
            if cycle.chunked_encoding is False and cycle.scope["method"] != "HEAD":
                self._held = data
                return
        held, self._held = self._held, b""
        if held and len(data) <= _MAX_JOINED_BYTES:
            data = held + data
        elif held:
            self._transport.write(held)
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether the connection is closed, or is when all is written."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection once all is written."""
        if self._held:
            self._transport.write(self._held)
            self._held = b""
        self._transport.close()
