"""A server of tools whose list is kept for a while, so that each response does not ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pagemill.server.tools.tool import INVALID_ARGUMENTS, Tool, ToolError, ToolResult, ToolServer

KEPT_S = 60.0
"""How long a list is used."""
FAILURE_KEPT_S = 5.0
"""How long a failed listing is not tried again: a server that hangs costs few requests its
timeout."""


class ListedServer:
    """Implements `tool.ToolServer` for another one. Requests that ask at once wait for one listing,
    and a call that fails forgets the list: the server may have been started again. Event loop
    only."""

    def __init__(self, server: ToolServer, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock, in seconds."""
        self._server = server
        self._now = now
        self._listing: asyncio.Task[Sequence[Tool]] | None = None
        self._expires = 0.0

    @property
    def label(self) -> str:
        """See `ToolServer`."""
        return self._server.label

    @property
    def requires_approval(self) -> bool:
        """See `ToolServer`."""
        return self._server.requires_approval

    async def list_tools(self) -> Sequence[Tool]:
        """See `ToolServer`."""
        listing = self._listing
        if listing is None or (listing.done() and self._now() >= self._expires):
            listing = asyncio.create_task(self._listed())
            listing.add_done_callback(_see)
            self._listing = listing
        # A request that goes away leaves the listing to the others.
        return await asyncio.shield(listing)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """See `ToolServer`."""
        try:
            return await self._server.call(name, arguments)
        except ToolError as error:
            if error.code != INVALID_ARGUMENTS:
                self._expires = 0.0
            raise

    async def close(self) -> None:
        """See `ToolServer`."""
        if self._listing is not None:
            self._listing.cancel()
        await self._server.close()

    async def _listed(self) -> Sequence[Tool]:
        kept_s = FAILURE_KEPT_S
        try:
            tools = await self._server.list_tools()
            kept_s = KEPT_S
            return tools
        finally:
            self._expires = self._now() + kept_s


def _see(listing: asyncio.Task[Sequence[Tool]]) -> None:
    """Takes the failure of a listing that all requests have left, which would be reported."""
    if not listing.cancelled():
        listing.exception()
