"""The router learns from KV events what servers have in their caches."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import pytest
import xxhash

from pagemill.router.testing.fake_fleet import FakeFleet, fake_fleet, until
from pagemill.server.access.caller import GRANTS, Caller
from pagemill.server.access.keys import ApiKey

BLOCK = 16
PROMPT = "a conversation that is long enough for several blocks of tokens"
ADMIN = ApiKey.of("admin", Caller("admin", scopes=frozenset(GRANTS)))
USER = ApiKey.of("user", Caller("user"))
HEADERS = {"x-api-key": "user"}


def block_hashes(text: str, extra_key: bytes = b"") -> list[bytes]:
    """cc/kv_cache/block_hash.h, of the fake renderer's tokens, which are bytes."""
    parent, hashes = b"", list[bytes]()
    tokens = list(text.encode())
    for begin in range(0, len(tokens) - BLOCK + 1, BLOCK):
        extra = extra_key if begin == 0 else b""
        content = parent.ljust(32, b"\0") + struct.pack("<I", len(extra)) + extra
        content += struct.pack(f"<{BLOCK}i", *tokens[begin : begin + BLOCK])
        parent = struct.pack("<QQ", *reversed(divmod(xxhash.xxh3_128_intdigest(content), 2**64)))
        hashes.append(parent)
    return hashes


def event(type: str, hashes: list[bytes], block_size: int = BLOCK) -> dict[str, Any]:
    return {
        "type": type,
        "group": 0,
        "medium": "pool",
        "block_size": block_size if type == "stored" else 0,
        "hashes": hashes,
    }


def aware(key_file: str, **settings: object) -> Any:
    return fake_fleet(
        policy="prefix_aware", server_keys=(ADMIN, USER), server_key_file=key_file, **settings
    )


@pytest.fixture
def key_file(tmp_path: Any) -> str:
    path = tmp_path / "key"
    path.write_text("admin\n")
    return str(path)


def said_by_router(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name == "pagemill.router"]


async def sent_to(fleet: FakeFleet, **fields: Any) -> int:
    """The server that answers a request for `PROMPT`, a completion unless it has `messages`, which
    may have a `path`, or `input`."""
    before = [server.counts.served for server in fleet.router.servers]
    path, body = "/v1/completions", {"prompt": PROMPT, "max_tokens": 2} | fields
    if "messages" in fields:
        path, body = fields.pop("path", "/v1/messages"), {"max_tokens": 2} | fields
    elif "input" in fields:
        path, body = "/v1/responses", fields
    got = await fleet.client.post(path, json=body, headers=HEADERS)
    assert got.status_code == 200, got.text
    after = [server.counts.served for server in fleet.router.servers]
    (index,) = [i for i in range(len(after)) if after[i] > before[i]]
    return index


async def learned(fleet: FakeFleet, server: int, count: int) -> None:
    await until(lambda: fleet.router.servers[server].counts.events == count)


@pytest.mark.parametrize("server", [0, 1])
def test_a_prompt_goes_where_its_blocks_are(key_file: str, server: int) -> None:
    async def test() -> None:
        async with aware(key_file) as fleet:
            log = fleet.servers[server].engine.kv_log
            log.append(event("stored", block_hashes(PROMPT)))
            await learned(fleet, server, 1)
            for _ in range(3):
                assert await sent_to(fleet) == server
            assert fleet.router.router.stats()["num_prefix_hits"] == 3
            tokens = len(PROMPT) // BLOCK * BLOCK
            assert fleet.router.router.stats()["prefix_tokens"] == 3 * tokens
            log.append(event("removed", block_hashes(PROMPT)))
            await learned(fleet, server, 2)
            assert {await sent_to(fleet, cache_salt=str(i)) for i in range(2)} == {0, 1}
            assert fleet.router.router.stats()["num_prefix_hits"] == 3

    asyncio.run(test())


def test_messages_go_where_their_blocks_are(key_file: str) -> None:
    async def test() -> None:
        async with aware(key_file) as fleet:
            prompt = f"system:Be brief.\nuser:{PROMPT}\nassistant:"
            fleet.servers[1].engine.kv_log.append(event("stored", block_hashes(prompt)))
            await learned(fleet, 1, 1)
            messages = [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
            for _ in range(2):
                assert await sent_to(fleet, messages=messages, system="Be brief.") == 1
            messages.insert(0, {"role": "system", "content": "Be brief."})
            assert await sent_to(fleet, path="/v2/chat", messages=messages) == 1
            assert fleet.router.router.stats()["num_prefix_hits"] == 3

    asyncio.run(test())


def test_a_response_goes_where_its_blocks_are(key_file: str) -> None:
    async def test() -> None:
        async with aware(key_file) as fleet:
            prompt = f"system:Be brief.\nuser:{PROMPT}\nassistant:"
            fleet.servers[1].engine.kv_log.append(event("stored", block_hashes(prompt)))
            await learned(fleet, 1, 1)
            fields = {"input": PROMPT, "instructions": "Be brief.", "max_output_tokens": 2}
            for _ in range(2):
                assert await sent_to(fleet, **fields) == 1
            assert fleet.router.router.stats()["num_prefix_hits"] == 2
            # What is stored is of one server: the router has no routes for it.
            got = await fleet.client.get("/v1/responses/resp_1", headers=HEADERS)
            assert got.status_code == 404

    asyncio.run(test())


def test_a_salt_is_part_of_the_hash(key_file: str) -> None:
    async def test() -> None:
        async with aware(key_file) as fleet:
            salted = block_hashes(PROMPT, b"salt" + struct.pack("<I", 4) + b"blue")
            fleet.servers[1].engine.kv_log.append(event("stored", salted))
            await learned(fleet, 1, 1)
            assert await sent_to(fleet, cache_salt="blue") == 1
            assert fleet.router.router.stats()["num_prefix_hits"] == 1
            await sent_to(fleet)
            assert fleet.router.router.stats()["num_prefix_hits"] == 1

    asyncio.run(test())


@pytest.mark.parametrize("num_events", [0, 5])
def test_a_new_engine_begins_with_nothing(key_file: str, num_events: int) -> None:
    """Whether the number that is asked for exists there or not."""

    async def test() -> None:
        async with aware(key_file) as fleet:
            engine = fleet.servers[1].engine
            engine.kv_log.append(event("stored", block_hashes(PROMPT)))
            await learned(fleet, 1, 1)
            assert await sent_to(fleet) == 1
            engine.kv_log_id = 2
            engine.kv_log[:] = [event("stored", block_hashes("x" * 16 * (i + 1)))
                                for i in range(num_events)]  # fmt: skip
            engine.kv_log.append(event("stored", block_hashes("y" * 32)))
            engine.kv_log.append(event("stored", block_hashes("z" * 32)))
            await learned(fleet, 1, 1 + num_events + 2)
            hits = fleet.router.router.stats()["num_prefix_hits"]
            await sent_to(fleet)
            assert fleet.router.router.stats()["num_prefix_hits"] == hits
            assert await sent_to(fleet, prompt="y" * 40) == 1

    asyncio.run(test())


def test_what_was_known_of_a_server_goes_with_it(key_file: str) -> None:
    async def test() -> None:
        async with aware(key_file) as fleet:
            fleet.servers[1].engine.kv_log.append(event("stored", block_hashes(PROMPT)))
            await learned(fleet, 1, 1)
            server = fleet.router.servers[1]
            fleet.router.probed(server, "it is gone")
            assert fleet.router.router.route(list(PROMPT.encode())) == 0
            fleet.router.router.forget(0)  # the routing itself counts
            await until(lambda: server in fleet.router.available)
            fleet.servers[1].engine.kv_log.append(event("cleared", []))  # ends the poll
            fleet.servers[1].engine.kv_log.append(event("stored", block_hashes(PROMPT)))
            await learned(fleet, 1, 1 + 3)  # its log is read from the beginning
            assert await sent_to(fleet) == 1

    asyncio.run(test())


@pytest.mark.parametrize("key", ["user", "none"])
def test_without_events_it_goes_by_what_it_sent(
    tmp_path: Any, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key"
    path.write_text(key)

    async def test() -> None:
        async with aware(str(path)) as fleet:
            first = await sent_to(fleet)
            assert [await sent_to(fleet) for _ in range(3)] == [first] * 3
            await until(lambda: len(said_by_router(caplog)) >= 2)

    with caplog.at_level(logging.WARNING, "pagemill.router"):
        asyncio.run(test())
    said = said_by_router(caplog)
    assert len(said) == 2  # once for each server
    assert all("does not show its KV events" in each for each in said)


def test_another_block_size_is_said(key_file: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with aware(key_file, num_servers=1) as fleet:
            for _ in range(3):
                fleet.servers[0].engine.kv_log.append(event("stored", [b"h" * 16], block_size=32))
            await learned(fleet, 0, 3)

    with caplog.at_level(logging.WARNING, "pagemill.router"):
        asyncio.run(test())
    (said,) = said_by_router(caplog)
    assert "start the router with --block-size 32" in said


def test_hashes_of_another_algorithm_are_said(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with aware(key_file, num_servers=1) as fleet:
            fleet.servers[0].engine.kv_log.append(event("stored", [b"h" * 32]))
            fleet.servers[0].engine.kv_log.append(event("stored", [b"h" * 5]))
            await learned(fleet, 0, 2)

    with caplog.at_level(logging.WARNING, "pagemill.router"):
        asyncio.run(test())
    assert "--prefix-caching-hash-algo" in said_by_router(caplog)[0]
