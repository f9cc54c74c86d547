"""Streams of responses that run in the background: stored, resumed, and left."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.output_machine import Formats
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.responses.store import ResponseStore
from pagemill.server.responses.store_file import StoreFile, create
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script, turns
from pagemill.server.testing.fake_tools import FakeTools, written_call

ANSWER = "It rains in Oslo, and in Rome the sun shines. " * 20
KEYS = [ApiKey.of(name, Caller(name)) for name in ("red", "blue")]
TOOL: dict[str, Any] = {"type": "mcp", "server_label": "weather", "require_approval": "never"}


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]],
    tmp_path: Path,
    options: FakeOptions | None = None,
) -> None:
    async def body() -> None:
        async with fake_server(
            options or FakeOptions(next_token=script(ANSWER), step_s=0.001),
            renderer=FakeRenderer(Formats(None, HERMES)),
            max_model_len=4096,
            response_store=str(tmp_path / "store"),
            keys=KEYS,
            tools=[FakeTools()],
        ) as server:
            await test(client_of(server, "red"), server)

    asyncio.run(body())


def client_of(server: FakeServer, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=key, base_url="http://fake/v1", http_client=server.client, max_retries=0
    )


async def begin(client: openai.AsyncOpenAI, **more: Any) -> Any:
    fields: dict[str, Any] = {"model": "fake", "input": "Rain?", "background": True, **more}
    return await client.responses.create(stream=True, **fields)


async def begun(tmp_path: Path) -> str:
    """The id of the response, once its first events are stored: clients here see whole streams."""
    with contextlib.closing(sqlite3.connect(tmp_path / "store")) as file:
        while True:
            with contextlib.suppress(sqlite3.Error):
                if found := file.execute("SELECT response FROM events").fetchall():
                    return found[0][0]
            await asyncio.sleep(0.01)


async def resumed(client: openai.AsyncOpenAI, name: str, after: int | None) -> list[Any]:
    more: dict[str, Any] = {} if after is None else {"starting_after": after}
    stream = await client.responses.retrieve(name, stream=True, **more)
    return [event async for event in stream]


def test_a_stream_can_be_read_again_from_each_event(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = [event async for event in await begin(client)]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        first, last = events[0], events[-1]
        assert (first.type, last.type) == ("response.created", "response.completed")
        assert first.response.background and first.response.output == []
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == last.response.output_text == ANSWER
        name = last.response.id
        assert (await client.responses.retrieve(name)).to_dict() == last.response.to_dict()
        assert await resumed(client, name, None) == events
        for after in range(len(events) + 2):
            assert await resumed(client, name, after) == events[after + 1 :]

    run(body, tmp_path)


def test_a_client_that_goes_away_finds_the_rest(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        server.engine.most_tokens = 3
        reading = asyncio.create_task(begin(client))
        name = await begun(tmp_path)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert (await client.responses.retrieve(name)).status == "in_progress"
        server.engine.most_tokens = None
        rest = await resumed(client, name, 1)
        assert [event.sequence_number for event in rest] == list(range(2, 2 + len(rest)))
        assert rest[-1].type == "response.completed"

    run(body, tmp_path)


def test_calls_of_tools_are_events_too(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = [event async for event in await begin(client, tools=[TOOL])]
        kinds = [event.type for event in events]
        assert "response.mcp_call.completed" in kinds and kinds[-1] == "response.completed"
        assert await resumed(client, events[0].response.id, None) == events

    run(body, tmp_path, turns(written_call("Oslo"), "Rain."))


def test_a_failure_is_the_end_of_the_stream(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = [event async for event in await begin(client)]
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        stored = await client.responses.retrieve(events[0].response.id)
        assert stored.to_dict() == events[-1].response.to_dict()

    run(body, tmp_path, FakeOptions(fail_at_position=3))


@pytest.mark.parametrize("deleted", [False, True])
def test_a_response_that_is_cancelled_ends_its_streams(deleted: bool, tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        server.engine.most_tokens = 3
        reading = asyncio.create_task(begin(client))
        name = await begun(tmp_path)
        await (client.responses.delete if deleted else client.responses.cancel)(name)
        kinds = [event.type async for event in await reading]
        assert "response.completed" not in kinds
        while server.state.lifecycle.active:
            await asyncio.sleep(0.01)

    run(body, tmp_path, FakeOptions())


def test_streams_that_there_are_not(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        whole = await client.responses.create(model="fake", input="Rain?", background=True)
        while (await client.responses.retrieve(whole.id)).status == "in_progress":
            await asyncio.sleep(0.01)
        with pytest.raises(openai.BadRequestError, match="not created"):
            await client.responses.retrieve(whole.id, stream=True)
        events = [event async for event in await begin(client)]
        name = events[0].response.id
        with pytest.raises(openai.NotFoundError):
            await client_of(server, "blue").responses.retrieve(name, stream=True)
        for query in ("stream=x", "stream=true&starting_after=x", "starting_after=-2"):
            path, headers = f"/v1/responses/{name}?{query}", {"x-api-key": "red"}
            response = await server.client.get(path, headers=headers)
            assert response.status_code == 400, query

    run(body, tmp_path)


def test_events_go_with_their_response(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    create(path)

    async def body() -> None:
        file = StoreFile(path, 2**20)
        store = ResponseStore(file)
        assert not await store.add_events("red", "absent", 0, b"data: 1\n\n")
        for name in ("a", "b", "c"):
            await store.put("red", name, b"[]", b"{}", running=True)
            for number in range(10):
                assert await store.add_events("red", name, number, b"x" * 50_000)
        assert await store.events("red", "a", -1) is None  # evicted, for the others
        assert await store.events("blue", "c", -1) is None
        found = await store.events("red", "c", 3)
        assert found is not None and [first for first, _ in found.chunks] == list(range(4, 10))
        await store.delete("red", "b")
        assert not await store.add_events("red", "b", 10, b"x")
        await store.end("red", "c", b"{}")
        assert not await store.add_events("red", "c", 10, b"x")
        await file.close()

    asyncio.run(body())
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT DISTINCT response FROM events").fetchall() == [("c",)]
    assert Path(path).stat().st_size <= 2**20
