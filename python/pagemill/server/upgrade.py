"""What an HTTP server offers to a handler that takes over its connection, for another protocol.

A request to upgrade is a request like any other until then: keys, origins and limits are checked by
the same layers, and a refusal is a response.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

UPGRADE = "upgrade"
"""Key of the ASGI scope's state under which an HTTP server offers an `Upgrade`."""

KEY_HOLDS = "key_holds"
"""Likewise, a function that says whether the request's key is still valid: a connection may outlive
it."""


class Taker(Protocol):
    """What a connection calls once it is taken over. Event loop only."""

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        ...

    def resumed(self) -> None:
        """The client has taken most of what was written."""
        ...

    def lost(self) -> None:
        """The connection is gone."""
        ...


class Upgrade(Protocol):
    """The connection of one request. Its bounds on slow readers hold further on."""

    @property
    def is_full(self) -> bool:
        """Whether more waits to be sent than should."""
        ...

    def take(self, taker: Taker) -> asyncio.Transport:
        """Takes the connection over; nothing of the request's response may have been sent."""
        ...
