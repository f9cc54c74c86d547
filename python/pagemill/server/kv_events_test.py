"""`/kv_events`: the scope that it needs, what it shows, and how long it waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pagemill.server.access.caller import GRANTS, Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_server import fake_server

ADMIN = ApiKey.of("admin", Caller("admin", scopes=frozenset(GRANTS)))
USER = ApiKey.of("user", Caller("user"))
HEADERS = {"x-api-key": "admin"}
STORED: dict[str, Any] = {
    "sequence": 1,
    "type": "stored",
    "group": 0,
    "medium": "pool",
    "hashes": [b"\x01" * 16],
    "parent": b"",
    "block_size": 16,
    "token_ids": [7] * 16,
    "extra_keys": [b""],
}


def test_it_is_for_operators() -> None:
    async def test() -> None:
        async with fake_server() as server:
            assert (await server.client.post("/kv_events", json={})).status_code == 403
        async with fake_server(keys=(ADMIN, USER)) as server:
            user = {"x-api-key": "user"}
            assert (await server.client.post("/kv_events", json={})).status_code == 401
            refused = await server.client.post("/kv_events", json={}, headers=user)
            assert refused.status_code == 403

    asyncio.run(test())


def test_it_shows_blocks_and_no_tokens() -> None:
    async def test() -> None:
        async with fake_server(keys=(ADMIN,)) as server:
            server.engine.kv_log += [STORED] * 3
            body = {"max_events": 2}
            got = await server.client.post("/kv_events", json=body, headers=HEADERS)
            shown = {name: STORED[name] for name in ("type", "group", "medium", "block_size")}
            assert got.json() == {
                "log_id": f"{1:016x}",
                "next": 3,
                "dropped": 0,
                "events": [shown | {"hashes": ["01" * 16]}] * 2,
            }
            for bad in ({"sequence": 0}, {"max_events": 10**6}, {"timeout_s": 1e9}):
                got = await server.client.post("/kv_events", json=bad, headers=HEADERS)
                assert got.status_code == 400
            got = await server.client.post("/kv_events", json={"sequence": 9}, headers=HEADERS)
            assert got.status_code == 400

    asyncio.run(test())


def test_a_poll_waits_for_the_first_event_and_for_no_drain() -> None:
    async def test() -> None:
        async with fake_server(keys=(ADMIN,)) as server:
            body = {"timeout_s": 30}
            poll = server.client.post("/kv_events", json=body, headers=HEADERS)
            waiting = asyncio.create_task(poll)
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done
            server.engine.kv_log.append(STORED)
            assert len((await waiting).json()["events"]) == 1
            began = time.monotonic()
            poll = server.client.post("/kv_events", json=body | {"sequence": 2}, headers=HEADERS)
            waiting = asyncio.create_task(poll)
            await asyncio.sleep(0.05)
            server.state.lifecycle.begin_drain()
            assert (await waiting).json()["events"] == []
            assert time.monotonic() - began < 20

    asyncio.run(test())
