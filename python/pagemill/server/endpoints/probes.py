"""`GET /health` and `GET /ready`: would a restart help, and would a new request be served?"""

from __future__ import annotations

from typing import Any

from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Phase
from pagemill.server.protocol.status import Status
from pagemill.server.state import ServerState


async def health(server: ServerState, body: dict[str, Any], caller: Caller) -> Status:
    """200 while the process lives and the engine makes progress, also while loading or draining."""
    del body, caller
    server.check_progress()
    return Status("ok", server.engine_states)


async def ready(server: ServerState, body: dict[str, Any], caller: Caller) -> Status:
    """200 only while the server takes requests; the 503 says what it does instead. `/ping` is its
    name on SageMaker."""
    del body, caller
    if server.lifecycle.phase is not Phase.READY:
        raise ApiError(503, f"The server is {server.lifecycle.phase.value}.")
    if not server.has_engine:
        raise ApiError(503, "The engine has ended and is started again.")
    server.check_progress()
    stats = server.stats
    if stats is not None and stats.asleep:
        raise ApiError(503, "The engine is asleep: the operator's /wake_up wakes it.")
    return Status("ready", server.engine_states)
