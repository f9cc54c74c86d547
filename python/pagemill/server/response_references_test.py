"""References to items of stored responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

KEYS = [ApiKey.of(name, Caller(name)) for name in ("red", "blue")]
QUESTION: dict[str, Any] = {"role": "user", "content": "Rain?"}


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]], store: str | None
) -> None:
    async def body() -> None:
        async with fake_server(
            FakeOptions(next_token=script("It rains.")),
            max_model_len=4096,
            response_store=store,
            keys=KEYS,
        ) as server:
            await test(client_of(server, "red"), server)

    asyncio.run(body())


def client_of(server: FakeServer, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=key, base_url="http://fake/v1", http_client=server.client, max_retries=0
    )


async def create(client: openai.AsyncOpenAI, *items: Any, **more: Any) -> Any:
    return await client.responses.create(model="fake", input=[*items], **more)


def reference(item: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": item.id}


@pytest.mark.parametrize("background", [False, True])
def test_a_reference_stands_for_the_item(background: bool, tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await create(client, QUESTION, background=background)
        while first.status == "in_progress":
            await asyncio.sleep(0.01)
            first = await client.responses.retrieve(first.id)
        (said,) = first.output
        second = await create(client, QUESTION, reference(said), QUESTION)
        await create(client, QUESTION, {"id": said.id}, QUESTION)
        await create(client, QUESTION, said.to_dict(), QUESTION)
        *_, by_type, by_id, by_item = server.renderer.rendered
        assert by_type.messages == by_id.messages == by_item.messages
        items = (await client.responses.input_items.list(second.id, order="asc")).data
        assert items[1].to_dict() == said.to_dict()
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match=said.id):
            await create(client, reference(said))

    run(body, str(tmp_path / "store"))


def test_items_of_another_key_do_not_exist(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (said,) = (await create(client, QUESTION)).output
        with pytest.raises(openai.NotFoundError):
            await create(client_of(server, "blue"), QUESTION, reference(said))

    run(body, str(tmp_path / "store"))


def test_references_are_checked(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        for item in ({"type": "item_reference"}, {"type": "item_reference", "id": 5}, {"id": 5}):
            with pytest.raises(openai.BadRequestError, match="item_reference"):
                await create(client, item)
        # The fake server takes bodies of 100,000 bytes, and a response has its request's fields.
        large = {"instructions": "x" * 2000, "user": "x" * 500}
        many = [await create(client, QUESTION, **large) for _ in range(40)]
        with pytest.raises(openai.BadRequestError, match="larger than a request may be"):
            await create(client, *(reference(each.output[0]) for each in many))

    run(body, str(tmp_path / "store"))


def test_a_server_without_a_store_has_no_items() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (said,) = (await create(client, QUESTION)).output
        with pytest.raises(openai.NotFoundError):
            await create(client, reference(said))

    run(body, None)
