"""Calls of tools and reasoning over HTTP, with the `openai` client and a model that is scripted."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.render.formats.json_formats import HERMES
from pagemill.render.formats.message_formats import HARMONY, INKLING
from pagemill.render.formats.reasoning_formats import NEMOTRON, THINK
from pagemill.render.output_machine import Formats
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import FakeServer, fake_server, script

BOTH = Formats(THINK, HERMES)
USER: list[Any] = [{"role": "user", "content": "How is the weather?"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
TOOLS: Any = [TOOL]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
OUTPUT = f"<think>\nI look it up.\n</think>\n\nLet me see.\n{CALL % 'Paris'}\n{CALL % 'Oslo'}"


BAD_SCHEMA: Any = {"type": "object", "properties": {"x": {"type": "nonsense"}}}


def tool_with(schema: Any, name: str = "f", **more: Any) -> Any:
    return [{"type": "function", "function": {"name": name, "parameters": schema, **more}}]


def tool_named(name: str) -> Any:
    return tool_with({"type": "object", "properties": {}}, name)


def allowed(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def run(
    test: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[None]],
    output: str = OUTPUT,
    formats: Formats | None = BOTH,
) -> None:
    async def body() -> None:
        options = FakeOptions(next_token=script(output))
        async with fake_server(
            options, renderer=FakeRenderer(formats), max_model_len=2048
        ) as server:
            client = openai.AsyncOpenAI(
                api_key="x",
                base_url="http://fake/v1",
                http_client=server.client,
                max_retries=0,
            )
            await test(client, server)
            assert server.async_engine.num_live == 0

    asyncio.run(body())


async def create(client: openai.AsyncOpenAI, **more: Any) -> Any:
    payload: dict[str, Any] = {"model": "fake", "messages": USER, "tools": TOOLS, **more}
    return await client.chat.completions.create(**payload)


async def streamed(client: openai.AsyncOpenAI, **more: Any) -> Any:
    """The message, folded from a stream as clients do."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "finish": None}
    async for chunk in await create(client, stream=True, **more):
        (choice,) = chunk.choices
        delta = choice.delta
        message["content"] += delta.content or ""
        message["reasoning"] += getattr(delta, "reasoning", None) or ""
        for call in delta.tool_calls or ():
            if call.id is not None:
                assert call.index == len(message["calls"]) and call.type == "function"
                message["calls"].append([call.id, call.function.name, ""])
            message["calls"][call.index][2] += call.function.arguments or ""
        message["finish"] = choice.finish_reason or message["finish"]
    return message


def test_a_message_with_reasoning_text_and_two_calls() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (choice,) = (await create(client)).choices
        assert choice.message.content == "Let me see."
        assert choice.message.reasoning == "I look it up."
        calls = choice.message.tool_calls
        assert [json.loads(c.function.arguments)["city"] for c in calls] == ["Paris", "Oslo"]
        assert {c.function.name for c in calls} == {"get_weather"}
        assert len({c.id for c in calls}) == 2
        assert choice.finish_reason == "tool_calls"

    run(body)


@pytest.mark.parametrize("interval", [1, 3, 1000])
def test_a_stream_adds_up_to_the_message(interval: int) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        whole = (await create(client)).choices[0].message
        got = await streamed(client, extra_body={"stream_interval": interval})
        assert got["content"] == whole.content
        assert got["reasoning"] == whole.reasoning
        assert [call[1:] for call in got["calls"]] == [
            [call.function.name, call.function.arguments] for call in whole.tool_calls
        ]
        assert got["finish"] == "tool_calls"

    run(body)


def test_arguments_are_streamed_as_they_are_written() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        parts = [
            call.function.arguments
            async for chunk in await create(client, stream=True, tool_choice="auto")
            for call in chunk.choices[0].delta.tool_calls or ()
        ]
        assert len(parts) > 20

    run(body)


def test_one_call_at_most_ends_the_response() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        response = await create(client, parallel_tool_calls=False)
        (call,) = response.choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Paris"}
        assert response.choices[0].finish_reason == "tool_calls"
        assert response.usage.completion_tokens < len(OUTPUT) - len(CALL)
        assert len((await streamed(client, parallel_tool_calls=False))["calls"]) == 1

    run(body)


def test_without_tools_or_with_choice_none_calls_are_text() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        for more in ({"tool_choice": "none"}, {"tools": openai.NOT_GIVEN}):
            (choice,) = (await create(client, **more)).choices
            assert choice.message.content == OUTPUT.partition("</think>\n\n")[2]
            assert choice.message.tool_calls is None
            assert choice.finish_reason == "stop"
        assert [bool(each.tools) for each in server.renderer.rendered] == [True, False]

    run(body)


def test_reasoning_can_be_left_out() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        hidden = {"extra_body": {"include_reasoning": False}}
        message = (await create(client, **hidden)).choices[0].message
        assert (message.content, getattr(message, "reasoning", None)) == ("Let me see.", None)
        got = await streamed(client, **hidden)
        assert (got["content"], got["reasoning"]) == ("Let me see.", "")

    run(body)


def test_a_call_that_is_no_json_is_text() -> None:
    output = "Well:\n<tool_call>\n{get_weather}\n</tool_call>"

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (choice,) = (await create(client)).choices
        assert (choice.message.content, choice.finish_reason) == (output, "stop")
        got = await streamed(client)
        assert (got["content"], got["finish"], got["calls"]) == (output, "stop", [])

    run(body, output)


def test_logprobs_are_of_all_tokens() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (choice,) = (await create(client, logprobs=True)).choices
        assert "".join(e.token for e in choice.logprobs.content) == OUTPUT + "\0"
        parts = [
            entry.token
            async for chunk in await create(client, logprobs=True, stream=True)
            if chunk.choices[0].logprobs is not None
            for entry in chunk.choices[0].logprobs.content
        ]
        assert "".join(parts) == OUTPUT + "\0"

    run(body)


def test_calls_and_results_reach_the_template() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
    ]

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        await create(client, messages=messages, max_tokens=1)
        (rendered,) = server.renderer.rendered
        assert rendered.messages == messages
        assert rendered.tools == TOOLS

    run(body)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "required", "tools": openai.NOT_GIVEN}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": allowed("required", "f")}, "tool_choice"),
        ({"tool_choice": allowed("none", "get_weather")}, "tool_choice"),
        ({"tool_choice": allowed("auto")}, "tool_choice"),
        ({"tool_choice": "required", "extra_body": {"guided_regex": "a"}}, "tool_choice"),
        ({"tool_choice": "required", "tools": tool_named("a b")}, "tools"),
        ({"tool_choice": "required", "tools": tool_with(BAD_SCHEMA)}, "tools"),
        ({"tools": tool_with(BAD_SCHEMA, strict=True)}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "retrieval", "function": {"name": "f"}}]}, "tools"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages"),
    ],
)
def test_refusals(more: dict[str, Any], param: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await create(client, **more)
        assert caught.value.param == param

    run(body)


def test_a_model_whose_format_is_not_known_says_which_flag_helps() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.BadRequestError, match="--tool-call-parser"):
            await create(client)
        (choice,) = (await create(client, tool_choice="none")).choices
        assert choice.message.content == OUTPUT

    run(body, formats=None)


def test_reasoning_that_the_prompt_opened() -> None:
    messages = [*USER, {"role": "assistant", "content": "<think>I"}]
    continued = {"add_generation_prompt": False, "continue_final_message": True}

    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        (choice,) = (await create(client, messages=messages, extra_body=continued)).choices
        assert (choice.message.reasoning, choice.message.content) == ("think.", "Yes.")
        prompt = [{"role": "user", "content": "<think>\n"}]  # the fake's template ends with it
        last = {"add_generation_prompt": False}
        (choice,) = (await create(client, messages=prompt, extra_body=last)).choices
        assert (choice.message.reasoning, choice.message.content) == ("think.", "Yes.")

    run(body, "think.\n</think>\n\nYes.")


def test_reasoning_answers_if_the_request_says_so() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        for variables, content in (({"enable_thinking": False}, "Hm."), ({}, "")):
            more: Any = {
                "tools": openai.NOT_GIVEN,
                "extra_body": {"chat_template_kwargs": variables},
            }
            (choice,) = (await create(client, **more)).choices
            assert (choice.message.content or "", choice.message.reasoning) == (content, "Hm.")
            got = await streamed(client, **more)
            assert (got["content"], got["reasoning"]) == (content, "Hm.")

    run(body, "<think>Hm.</think>", Formats(NEMOTRON, HERMES))


SCHEMA: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


def test_messages_that_are_calls_or_json() -> None:
    async def body(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        # The scripted model is not constrained, but requests that cannot be are refused.
        for more in (
            {"tool_choice": "required"},
            {"response_format": SCHEMA},
            {"response_format": SCHEMA, "tools": openai.NOT_GIVEN},
        ):
            await create(client, **more)
        for more in (
            {"extra_body": {"guided_regex": "a"}, "tools": openai.NOT_GIVEN},
            {
                "tool_choice": "required",
                "messages": [*USER, {"role": "assistant", "content": "I"}],
                "extra_body": {"continue_final_message": True, "add_generation_prompt": False},
            },
        ):
            with pytest.raises(openai.BadRequestError):
                await create(client, **more)

    call = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"a": 1}'
    run(body, call, Formats(messages=HARMONY))

    async def refused(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(openai.BadRequestError, match="there is no grammar"):
            await create(client, tool_choice="required")

    run(refused, "x", Formats(messages=INKLING))


class ShowingRenderer(FakeRenderer):
    """Reads a schema of answers; records what it was given."""

    chat_variables = frozenset({"response_format"})
    variables: list[Any]

    def render_chat(self, *args: Any, **options: Any) -> Any:
        self.variables = [*getattr(self, "variables", ()), args[4]]
        return super().render_chat(*args, **options)


def test_renderers_that_show_a_schema_get_it() -> None:
    async def body() -> None:
        renderer = ShowingRenderer(BOTH)
        options = FakeOptions(next_token=script("{}"))
        async with fake_server(options, renderer=renderer, max_model_len=2048) as server:
            for wanted in (SCHEMA, {"type": "json_object"}):
                payload = {"model": "fake", "messages": USER, "response_format": wanted}
                reply = await server.client.post("/v1/chat/completions", json=payload)
                assert reply.status_code == 200, reply.text
        described = SCHEMA["json_schema"]
        assert renderer.variables == [{"response_format": described}, {}]

    asyncio.run(body())
