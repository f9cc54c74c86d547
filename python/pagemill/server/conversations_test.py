"""`/v1/conversations` with the `openai` client, and responses that continue them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, turns

KEYS = [ApiKey.of(name, Caller(name)) for name in ("red", "blue")]


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]],
    store: Path | None,
    *outputs: str,
) -> None:
    async def body() -> None:
        async with fake_server(
            turns(*(outputs or ("It is one.",))),
            renderer=FakeRenderer(),
            max_model_len=4096,
            response_store=None if store is None else str(store / "store"),
            keys=KEYS,
        ) as server:
            await test(client_of(server, "red"), server)

    asyncio.run(body())


def client_of(server: FakeServer, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=key, base_url="http://fake/v1", http_client=server.client, max_retries=0
    )


def message(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text, "type": "message"}


async def texts(client: openai.AsyncOpenAI, name: str) -> list[str]:
    """The texts of the conversation's messages, in their order."""
    items: Any = [item async for item in client.conversations.items.list(name, order="asc")]
    return [item.content[0].text for item in items]


def test_life_of_a_conversation(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        made = await client.conversations.create(metadata={"topic": "a"}, items=[message("Hi")])
        assert made.id.startswith("conv_") and made.object == "conversation"
        assert made.metadata == {"topic": "a"}
        assert await client.conversations.retrieve(made.id) == made
        changed = await client.conversations.update(made.id, metadata={"topic": "b"})
        assert changed.metadata == {"topic": "b"} and changed.created_at == made.created_at
        assert await client.conversations.retrieve(made.id) == changed
        assert await texts(client, made.id) == ["Hi"]
        gone = await client.conversations.delete(made.id)
        assert gone.deleted and gone.object == "conversation.deleted"
        with pytest.raises(openai.NotFoundError, match="There is no conversation"):
            await client.conversations.retrieve(made.id)

    run(body, tmp_path)


def test_items(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        name = (await client.conversations.create()).id
        assert await texts(client, name) == []
        for start in range(0, 40, 20):
            words = [message(str(number)) for number in range(start, start + 20)]
            added = await client.conversations.items.create(name, items=words)
            assert [item.content[0].text for item in added.data] == [  # type: ignore[union-attr]
                str(number) for number in range(start, start + 20)
            ]
        assert await texts(client, name) == [str(number) for number in range(40)]
        page = await client.conversations.items.list(name, limit=3)
        assert [item.content[0].text for item in page.data] == ["39", "38", "37"]  # type: ignore[union-attr]
        assert page.has_more and page.last_id == page.data[-1].id
        item_id = page.data[0].id
        assert item_id is not None
        item = await client.conversations.items.retrieve(item_id, conversation_id=name)
        assert item == page.data[0]
        left = await client.conversations.items.delete(item_id, conversation_id=name)
        assert left.id == name and len(await texts(client, name)) == 39
        for call in (
            client.conversations.items.retrieve(item_id, conversation_id=name),
            client.conversations.items.delete(item_id, conversation_id=name),
        ):
            with pytest.raises(openai.NotFoundError, match="has no item"):
                await call

    run(body, tmp_path)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": True}, {"store": False}])
def test_responses_continue_and_add_to_it(tmp_path: Path, more: dict[str, Any]) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        name = (await client.conversations.create(items=[message("First.")])).id
        for text, conversation in (("Second?", name), ("Third?", {"id": name})):
            response: Any = await client.responses.create(
                model="fake", input=text, conversation=conversation, **more
            )
            if more.get("stream"):
                response = [event async for event in response][-1].response
            while response.status in ("queued", "in_progress"):
                await asyncio.sleep(0.01)
                response = await client.responses.retrieve(response.id)
            assert response.status == "completed" and response.conversation.id == name
            async with asyncio.timeout(60):  # a background response is added behind its end
                while text not in await texts(client, name):
                    await asyncio.sleep(0.01)
        assert await texts(client, name) == ["First.", "Second?", "one", "Third?", "two"]
        said = [message["content"] for message in server.renderer.rendered[-1].messages]
        assert said == ["First.", "Second?", "one", "Third?"]

    run(body, tmp_path, "one", "two")


def test_failed_responses_add_nothing(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        name = (await client.conversations.create(items=[message("First.")])).id
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model="fake", input="x" * 5000, conversation=name)
        assert await texts(client, name) == ["First."]

    run(body, tmp_path)


def test_a_conversation_is_its_keys(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        name = (await client.conversations.create(items=[message("secret")])).id
        other = client_of(server, "blue")
        for call in (
            other.conversations.retrieve(name),
            other.conversations.update(name, metadata={}),
            other.conversations.delete(name),
            other.conversations.items.create(name, items=[message("x")]),
            other.conversations.items.retrieve("x", conversation_id=name),
            other.responses.create(model="fake", input="Hi", conversation=name),
            other.responses.retrieve(name),
        ):
            with pytest.raises(openai.NotFoundError) as error:
                await call
            assert "secret" not in str(error.value)
        assert await texts(client, name) == ["secret"]

    run(body, tmp_path)


def test_refusals(tmp_path: Path) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        first = await client.responses.create(model="fake", input="Hi")
        name = (await client.conversations.create()).id
        create = client.responses.create
        items = client.conversations.items
        full = (await client.conversations.create(items=[message("x" * 60_000)])).id
        for call, why in (
            (
                create(model="fake", input="a", conversation=name, previous_response_id=first.id),
                "exclude each other",
            ),
            (client.conversations.create(items=[message("x")] * 21), "items"),
            (client.conversations.create(metadata={"a" * 65: "b"}), "metadata"),
            (items.create(name, items=[message("x", "stranger")]), r"items\[0\]\.role"),
            (items.create(full, items=[message("x" * 60_000)]), "more than 16384 items, or more"),
        ):
            with pytest.raises(openai.BadRequestError, match=why):
                await call
        assert await texts(client, name) == []

    run(body, tmp_path)


def test_server_that_stores_nothing() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.NotFoundError, match="--response-store-bytes"):
            await client.conversations.create()
        with pytest.raises(openai.NotFoundError, match="no conversation"):
            await client.responses.create(model="fake", input="Hi", conversation="conv_1")

    run(body, None)
