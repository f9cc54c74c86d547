"""`GET /version`."""

from __future__ import annotations

from typing import Any

from pagemill import __version__
from pagemill.server.caller import Caller
from pagemill.server.protocol.status import Version
from pagemill.server.state import ServerState


async def get(server: ServerState, body: dict[str, Any], caller: Caller) -> Version:
    """The version of the program."""
    del server, body, caller
    return Version(__version__)
