"""`/v1/chat/completions/batch`: many conversations, one response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from pagemill.server.caller import ANONYMOUS
from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server

ROUTE = "/v1/chat/completions/batch"


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def run(test: Callable[[FakeServer], Awaitable[None]], **options: Any) -> None:
    async def body() -> None:
        async with fake_server(**options) as server:
            await test(server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def post(server: FakeServer, status: int = 200, route: str = ROUTE, **body: Any) -> Any:
    response = await server.client.post(route, json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_each_conversation_has_a_choice() -> None:
    async def body(server: FakeServer) -> None:
        fields = {"max_tokens": 4, "seed": 1, "logprobs": True, "return_token_ids": True}
        texts = ["Hi", "How are you?", "Hi"]
        got = await post(server, messages=[user(text) for text in texts], **fields)
        assert got["object"] == "chat.completion" and "prompt_token_ids" not in got
        assert [choice["index"] for choice in got["choices"]] == [0, 1, 2]
        prompt_tokens = 0
        for text, choice in zip(texts, got["choices"], strict=True):
            alone = await post(server, route="/v1/chat/completions", messages=user(text), **fields)
            assert choice | {"index": 0} == alone["choices"][0]
            prompt_tokens += alone["usage"]["prompt_tokens"]
        assert got["usage"]["prompt_tokens"] == prompt_tokens
        assert got["usage"]["completion_tokens"] == 12

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": user("Hi")}, "messages"),
        ({"messages": [user("Hi"), []]}, "messages"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"echo": True}, "echo"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"max_tokens": 10_000}, "max_tokens"),
    ],
)
def test_refusals(fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        refused = await post(server, 400, **{"messages": [user("Hi")], **fields})
        assert refused["error"]["param"] == param
        assert not server.engine.submitted

    run(body)


def test_a_bad_conversation_is_named_and_nothing_runs() -> None:
    async def body(server: FakeServer) -> None:
        bad = [{"role": "user", "content": 5}]
        refused = await post(server, 400, messages=[user("Hi"), bad])
        assert refused["error"]["message"].startswith("Conversation 1: `messages[0].content`")
        assert not server.engine.submitted
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        pipeline.model = replace(pipeline.model, max_choices=2)
        refused = await post(server, 400, messages=[user("Hi")] * 3)
        assert refused["error"]["param"] == "messages"

    run(body)


def test_answers_that_begin_differently_are_not_constrained_together() -> None:
    async def body(server: FakeServer) -> None:
        pipeline = server.state.models.resolve(None, ANONYMOUS).model
        assert pipeline.renderer.formats.has_reasoning
        messages = [user("Hi"), [*user("Hi"), {"role": "system", "content": "x"}]]
        schema = {"type": "json_object"}
        refused = await post(
            server, 400, messages=messages, response_format=schema, add_generation_prompt=False
        )
        assert "one by one" in refused["error"]["message"]

    class Renderer(FakeRenderer):
        def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
            text = super().decode(token_ids, skip_special_tokens)
            return text + "<think>" if text.endswith("x") else text

    run(body, renderer=Renderer(MARKED))
