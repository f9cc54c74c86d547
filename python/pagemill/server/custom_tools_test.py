"""`/v1/responses` with custom tools, whose input is any text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.output_machine import Formats
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

TOOL: dict[str, Any] = {"type": "custom", "name": "run", "description": "Runs a program."}
PROGRAM = 'print("a")\n'
WRITTEN = json.dumps({"name": "run", "arguments": {"input": PROGRAM}})
CALL = f"<tool_call>\n{WRITTEN}\n</tool_call>"
REGEX: dict[str, Any] = {"type": "grammar", "syntax": "regex", "definition": "a+|b"}


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]], output: str = CALL
) -> None:
    async def body() -> None:
        async with fake_server(
            FakeOptions(next_token=script(output)),
            renderer=FakeRenderer(Formats(None, HERMES)),
            max_model_len=4096,
        ) as server:
            client = openai.AsyncOpenAI(
                api_key="none",
                base_url="http://fake/v1",
                http_client=server.client,
                max_retries=0,
            )
            await test(client, server)

    asyncio.run(body())


async def create(client: openai.AsyncOpenAI, **more: Any) -> Any:
    fields: dict[str, Any] = {"model": "fake", "input": "Run it.", "tools": [TOOL], **more}
    return await client.responses.create(**fields)


def test_a_call_and_its_output() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client)
        (made,) = response.output
        assert (made.type, made.name, made.input) == ("custom_tool_call", "run", PROGRAM)
        (shown,) = server.renderer.rendered[-1].tools or ()
        function = shown["function"]
        assert (function["name"], function["description"]) == ("run", "Runs a program.")
        assert function["parameters"]["required"] == ["input"]
        output = {"type": "custom_tool_call_output", "call_id": made.call_id, "output": "a"}
        question = {"role": "user", "content": "Run it."}
        await create(client, input=[question, made.to_dict(), output])
        _, said, result = server.renderer.rendered[-1].messages
        (call,) = said["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"input": PROGRAM}
        assert (result["role"], result["content"], result["name"]) == ("tool", "a", "run")
        with pytest.raises(openai.BadRequestError, match="comes before it"):
            await create(client, input=[output])

    run(body)


def test_the_events_of_a_stream() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        events = [event async for event in await create(client, stream=True)]
        assert [event.type.removeprefix("response.") for event in events] == [
            "created",
            "in_progress",
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
        assert events[3].delta == events[4].input == events[5].item.input == PROGRAM
        assert events[2].item.input == "" and events[5].item == events[-1].response.output[0]

    run(body)


def test_a_call_that_is_cut_has_what_was_written() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, max_output_tokens=len(CALL) - 25)
        (made,) = response.output
        assert response.status == "incomplete" and made.input.startswith('{"input": "print')

    run(body)


@pytest.mark.parametrize("choice", ["auto", {"type": "custom", "name": "run"}])
def test_an_input_with_a_grammar(choice: Any) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        tools = [{**TOOL, "format": REGEX}]
        await create(client, tools=tools, tool_choice=choice, max_output_tokens=1)
        (shown,) = server.renderer.rendered[-1].tools or ()
        function = shown["function"]
        assert function["strict"]
        assert function["parameters"]["properties"]["input"]["pattern"] == "^(a+|b)$"

    run(body)


@pytest.mark.parametrize(
    "format_",
    [
        {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
        {"type": "grammar", "syntax": "regex"},
        {"type": "grammar", "syntax": "regex", "definition": "(a"},
        {"type": "json"},
        5,
    ],
)
def test_formats_that_are_refused(format_: Any) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await create(client, tools=[{**TOOL, "format": format_}])
        assert caught.value.param == "tools"

    run(body)
