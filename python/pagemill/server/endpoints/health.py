"""`GET /health`: would restarting the process help?"""

from __future__ import annotations

from typing import Any

from pagemill.server.caller import Caller
from pagemill.server.protocol.status import Status
from pagemill.server.state import ServerState


async def get(server: ServerState, body: dict[str, Any], caller: Caller) -> Status:
    """200 while the process lives and the engine makes progress, also while loading or draining."""
    del body, caller
    server.check_progress()
    return Status("ok")
