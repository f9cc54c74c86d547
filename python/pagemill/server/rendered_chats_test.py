"""Renderings of chats in all three APIs: as requests of tokens they generate what the chat does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagemill.server.testing.fake_renderer import MARKED, FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
FUNCTION = {"name": "look", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
FREE: list[dict[str, Any]] = [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}]
CHAT, GENERATE = "/v1/chat/completions", "/inference/v1/generate"


def run(body: Callable[[FakeServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_server(renderer=FakeRenderer(MARKED), max_model_len=512) as server:
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, route: str, status: int = 200, **fields: Any) -> Any:
    response = await server.client.post(route, json=fields)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"tools": TOOLS, "tool_choice": "none"},
        {"tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"tools": TOOLS, "response_format": {"type": "json_object"}},
    ],
    ids=["text", "auto", "required", "named", "none", "strict", "format", "both"],
)
def test_a_rendering_generates_what_the_chat_does(fields: dict[str, Any]) -> None:
    async def body(server: FakeServer) -> None:
        for seed in range(3):
            chat = {"messages": [USER], "max_tokens": 60, "seed": seed, **fields}
            known = await post(server, CHAT, **chat, return_token_ids=True)
            rendered = await post(server, f"{CHAT}/render", **chat)
            answer = await post(server, GENERATE, **rendered, return_token_ids=True)
            assert answer["prompt_token_ids"] == known["prompt_token_ids"]
            assert answer["choices"][0]["token_ids"] == known["choices"][0]["token_ids"]
            is_bound = "structured_outputs" in rendered["sampling_params"]
            assert is_bound == (fields not in FREE)

    run(body)


def test_messages_and_responses_are_rendered_alike() -> None:
    async def body(server: FakeServer) -> None:
        named = {"type": "function", "function": {"name": "look"}}
        wanted = await post(
            server,
            f"{CHAT}/render",
            messages=[USER],
            max_tokens=9,
            tools=TOOLS,
            temperature=0.5,
            tool_choice=named,
            request_id="r",
        )
        messages = await post(
            server,
            "/v1/messages/render",
            messages=[USER],
            max_tokens=9,
            temperature=0.5,
            request_id="r",
            tools=[{"name": "look", "input_schema": SCHEMA}],
            tool_choice={"type": "tool", "name": "look"},
        )
        responses = await post(
            server,
            "/v1/responses/render",
            input="Hi",
            max_output_tokens=9,
            temperature=0.5,
            request_id="r",
            tools=[{"type": "function", **FUNCTION}],
            tool_choice={"type": "function", "name": "look"},
        )
        assert messages == wanted and responses == wanted
        assert not server.engine.submitted

    run(body)


@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        (f"{CHAT}/render", {"messages": [USER], "top_logprobs": 2}, "top_logprobs"),
        (f"{CHAT}/render", {"messages": [USER], "tool_choice": "required"}, "tool_choice"),
        (f"{CHAT}/render", {"messages": [USER], "guided_regex": "(a"}, "guided_regex"),
        ("/v1/responses/render", {"input": "a" * 600}, "input"),
        ("/v1/responses/render", {"input": "a", "max_output_tokens": 900}, "max_output_tokens"),
        (
            "/v1/responses/render",
            {"input": "a", "previous_response_id": "x"},
            "previous_response_id",
        ),
    ],
)
def test_refusals_are_those_of_the_chat(route: str, fields: dict[str, Any], param: str) -> None:
    async def body(server: FakeServer) -> None:
        status = 404 if param == "previous_response_id" else 400
        refused = await post(server, route, status, **fields)
        assert refused["error"]["param"] == param
        assert refused == await post(server, route.removesuffix("/render"), status, **fields)

    run(body)


def test_refusals_of_messages_are_anthropics() -> None:
    async def body(server: FakeServer) -> None:
        refused = await post(server, "/v1/messages/render", 400, messages=[USER])
        assert refused["type"] == "error" and "max_tokens" in refused["error"]["message"]

    run(body)


@pytest.mark.parametrize("reasoning", [5, {}, {"closers": []}, {"closers": [-1]}, {"closers": "x"}])
def test_reasoning_that_is_not_tokens(reasoning: Any) -> None:
    async def body(server: FakeServer) -> None:
        fields = {"token_ids": [1], "sampling_params": {}, "reasoning": reasoning}
        assert (await post(server, GENERATE, 400, **fields))["error"]["param"] == "reasoning"

    run(body)
