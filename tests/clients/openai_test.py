"""The `openai` package, synchronous and asynchronous: completions, chat, tools, responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from tests.clients.weather import FRANCE, PARAMETERS, QUESTION, TOOLS, Report
from tests.e2e.server_process import NAME

CHAT_TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__,
            "parameters": PARAMETERS[name],
            "strict": True,
        },
    }
    for name, tool in TOOLS.items()
]
RESPONSE_TOOLS: Any = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]
ASK_FRANCE: Any = [{"role": "user", "content": FRANCE}]
CHAT: dict[str, Any] = {"model": NAME, "temperature": 0, "max_completion_tokens": 100}
# What each turn of the agent has to do: name a tool, call any, answer.
CHAT_TURNS: Sequence[Any] = (
    {"type": "function", "function": {"name": "find_station"}},
    "required",
    "none",
)
RESPONSE_TURNS: Sequence[Any] = (
    {"type": "function", "name": "find_station"},
    "required",
    "none",
)


@pytest.fixture(scope="module")
def client(openai_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=openai_url, api_key="none", max_retries=0)


def connect(url: str) -> openai.AsyncOpenAI:
    """A client of its own for each event loop."""
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)


def run_tool(name: str, arguments: str) -> str:
    return TOOLS[name](**json.loads(arguments))


def test_completions(client: openai.OpenAI, openai_url: str, runner: asyncio.Runner) -> None:
    request: Any = {"model": NAME, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}
    whole = client.completions.create(**request)
    assert whole.usage is not None and whole.usage.completion_tokens == 12
    chunks = list(client.completions.create(**request, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"

    async def again() -> tuple[str, str]:
        async with connect(openai_url) as client:
            got = await client.completions.create(**request)
            stream = await client.completions.create(**request, stream=True)
            return got.choices[0].text, "".join([c.choices[0].text async for c in stream])

    assert runner.run(again()) == (whole.choices[0].text,) * 2


def test_chat(client: openai.OpenAI, openai_url: str, runner: asyncio.Runner) -> None:
    whole = client.chat.completions.create(**CHAT, messages=ASK_FRANCE)
    text = whole.choices[0].message.content
    assert text is not None and "Paris" in text
    with client.chat.completions.stream(**CHAT, messages=ASK_FRANCE) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == text
    assert final.choices[0].finish_reason == "stop"

    async def again() -> tuple[str | None, str]:
        async with connect(openai_url) as client:
            got = await client.chat.completions.create(**CHAT, messages=ASK_FRANCE)
            stream = await client.chat.completions.create(**CHAT, messages=ASK_FRANCE, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return got.choices[0].message.content, "".join(pieces)

    assert runner.run(again()) == (text, text)


def test_logprobs_and_choices(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(
        model=NAME,
        messages=ASK_FRANCE,
        n=2,
        seed=1,
        temperature=1,
        max_completion_tokens=4,
        logprobs=True,
        top_logprobs=2,
    )
    assert [choice.index for choice in got.choices] == [0, 1]
    for choice in got.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)


def check_agent(called: list[str], answer: str | None) -> None:
    assert called[0] == "find_station" and len(called) == 2 and set(called) <= set(TOOLS)
    assert answer


@pytest.mark.parametrize("stream", [False, True])
def test_chat_agent(client: openai.OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    called: list[str] = []
    for choice in CHAT_TURNS:
        request = {**CHAT, "messages": messages, "tools": CHAT_TOOLS, "tool_choice": choice}
        request["parallel_tool_calls"] = False
        if stream:
            with client.chat.completions.stream(**request) as events:
                arguments = "".join(
                    event.arguments_delta
                    for event in events
                    if event.type == "tool_calls.function.arguments.delta"
                )
                message = events.get_final_completion().choices[0].message
            calls = message.tool_calls or []
            assert arguments == "".join(call.function.arguments for call in calls)
        else:
            message = client.chat.completions.create(**request).choices[0].message
            calls = message.tool_calls or []
        messages.append(message)
        for call in calls:
            assert call.type == "function" and call.id
            called.append(call.function.name)
            result = run_tool(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    check_agent(called, messages[-1].content)


def test_chat_agent_async(openai_url: str, runner: asyncio.Runner) -> None:
    async def run() -> tuple[list[str], str | None]:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        called: list[str] = []
        async with connect(openai_url) as client:
            for choice in CHAT_TURNS:
                request = {**CHAT, "messages": messages, "tools": CHAT_TOOLS}
                async with client.chat.completions.stream(
                    **request, tool_choice=choice, parallel_tool_calls=False
                ) as events:
                    message = (await events.get_final_completion()).choices[0].message
                messages.append(message)
                for call in message.tool_calls or []:
                    called.append(call.function.name)
                    result = run_tool(call.function.name, call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return called, messages[-1].content

    check_agent(*runner.run(run()))


def test_chat_parse(client: openai.OpenAI, openai_url: str, runner: asyncio.Runner) -> None:
    request: Any = {**CHAT, "messages": ASK_FRANCE, "response_format": Report}
    got = client.chat.completions.parse(**request).choices[0].message.parsed
    assert isinstance(got, Report)
    with client.chat.completions.stream(**request) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == got
    tool = openai.pydantic_function_tool(Report)
    message = client.chat.completions.parse(
        **CHAT,
        messages=ASK_FRANCE,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    calls = message.choices[0].message.tool_calls or []
    assert calls and isinstance(calls[0].function.parsed_arguments, Report)

    async def again() -> Report | None:
        async with connect(openai_url) as client:
            answer = await client.chat.completions.parse(**request)
            return answer.choices[0].message.parsed

    assert runner.run(again()) == got


def test_responses(client: openai.OpenAI, openai_url: str, runner: asyncio.Runner) -> None:
    request: Any = {"model": NAME, "input": FRANCE, "temperature": 0, "max_output_tokens": 100}
    whole = client.responses.create(**request)
    assert whole.status == "completed" and "Paris" in whole.output_text
    with client.responses.stream(**request) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert text == stream.get_final_response().output_text == whole.output_text
    parsed = client.responses.parse(**request, text_format=Report).output_parsed
    assert isinstance(parsed, Report)
    with client.responses.stream(**request, text_format=Report) as stream:
        assert stream.get_final_response().output_parsed == parsed

    async def again() -> tuple[str, Report | None]:
        async with connect(openai_url) as client:
            got = await client.responses.create(**request)
            second = await client.responses.parse(**request, text_format=Report)
            return got.output_text, second.output_parsed

    assert runner.run(again()) == (whole.output_text, parsed)


@pytest.mark.parametrize("stored", [False, True])
def test_responses_agent(client: openai.OpenAI, stored: bool) -> None:
    """The conversation is sent anew with each turn, or the server has it."""
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    called: list[str] = []
    previous, answer = None, ""
    for choice in RESPONSE_TURNS:
        with client.responses.stream(
            model=NAME,
            input=items,
            tools=RESPONSE_TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            previous_response_id=previous,
            store=stored,
            temperature=0,
            max_output_tokens=100,
        ) as stream:
            response = stream.get_final_response()
        if stored:
            items, previous = [], response.id
        else:
            items += response.output
        for item in response.output:
            if item.type == "function_call":
                called.append(item.name)
                result = run_tool(item.name, item.arguments)
                call_id = item.call_id
                items.append({"type": "function_call_output", "call_id": call_id, "output": result})
        answer = response.output_text
    check_agent(called, answer)
    if stored:
        assert previous is not None
        client.responses.delete(previous)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(previous)


def test_models_and_errors(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=ASK_FRANCE)
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model=NAME, messages=ASK_FRANCE, temperature=-1)
    assert refusal.value.param == "temperature"
