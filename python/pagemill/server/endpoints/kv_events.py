"""`POST /kv_events`: what came to the prefix cache and went, for routers (docs/routing.md)."""

from __future__ import annotations

import asyncio
from typing import Any

from pagemill.engine.outputs import EngineError
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.errors import from_engine
from pagemill.server.lifecycle import Phase
from pagemill.server.protocol.kv_event import KvEvent, KvEvents, KvEventsRequest
from pagemill.server.state import ServerState

_POLL_S = 0.05  # a router that learns of a block so much later has not sent its next turn yet


async def poll(server: ServerState, body: KvEventsRequest, caller: Caller) -> KvEvents:
    """Waits for the first event, but not while the server drains."""
    del caller
    engine = server.models.resolve(None, ANONYMOUS).model.engine
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body.timeout_s
    while True:
        try:
            batch = await engine.call(
                "kv_events", sequence=body.sequence, max_events=body.max_events
            )
        except EngineError as error:
            raise from_engine(error) from error
        has_news = batch["events"] or batch["dropped"]
        if has_news or loop.time() >= deadline or server.lifecycle.phase is not Phase.READY:
            return _answer(batch)
        await asyncio.sleep(_POLL_S)


def _answer(batch: dict[str, Any]) -> KvEvents:
    events = [
        KvEvent(
            type=event["type"],
            group=event["group"],
            medium=event["medium"],
            block_size=event["block_size"],
            hashes=[each.hex() for each in event["hashes"]],
        )
        for event in batch["events"]
    ]
    return KvEvents(f"{batch['log_id']:016x}", batch["next"], batch["dropped"], events)
