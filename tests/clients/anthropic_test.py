"""The `anthropic` package, synchronous and asynchronous: messages, tools, structured output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import anthropic
import pytest

from tests.clients.weather import FRANCE, PARAMETERS, QUESTION, TOOLS, City, Report
from tests.e2e.server_process import NAME, ServerProcess

ANTHROPIC_TOOLS: Any = [
    {"name": name, "description": tool.__doc__, "input_schema": PARAMETERS[name]}
    for name, tool in TOOLS.items()
]
ASK_FRANCE: Any = [{"role": "user", "content": FRANCE}]
# The package has no parameter for the temperature.
REQUEST: dict[str, Any] = {"model": NAME, "max_tokens": 100, "extra_body": {"temperature": 0}}
TURNS: Sequence[Any] = (
    {"type": "tool", "name": "find_station", "disable_parallel_tool_use": True},
    {"type": "any", "disable_parallel_tool_use": True},
    {"type": "none"},
)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key="none", max_retries=0)


def connect(server: ServerProcess) -> anthropic.AsyncAnthropic:
    """A client of its own for each event loop."""
    return anthropic.AsyncAnthropic(base_url=server.base_url, api_key="none", max_retries=0)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_messages(
    client: anthropic.Anthropic, server: ServerProcess, runner: asyncio.Runner
) -> None:
    request: Any = {**REQUEST, "messages": ASK_FRANCE, "system": "Be brief."}
    whole = client.messages.create(**request)
    assert "Paris" in text_of(whole) and whole.stop_reason == "end_turn"
    with client.messages.stream(**request) as stream:
        assert "".join(stream.text_stream) == text_of(whole)
        final = stream.get_final_message()
    assert (text_of(final), final.stop_reason) == (text_of(whole), whole.stop_reason)
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model=NAME, messages=ASK_FRANCE, system="Be brief.")
    usage = whole.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)

    async def again() -> tuple[str, str]:
        async with connect(server) as client:
            got = await client.messages.create(**request)
            async with client.messages.stream(**request) as stream:
                return text_of(got), "".join([text async for text in stream.text_stream])

    assert runner.run(again()) == (text_of(whole),) * 2


def take_turn(messages: list[Any], message: Any, called: list[str]) -> None:
    """Appends the assistant's turn and the results of the tools that it calls."""
    messages.append({"role": "assistant", "content": message.content})
    results: list[Any] = []
    for block in message.content:
        if block.type == "tool_use":
            called.append(block.name)
            text = TOOLS[block.name](**block.input)
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": text})
    if results:
        assert message.stop_reason == "tool_use"
        messages.append({"role": "user", "content": results})


def check_agent(messages: list[Any], called: list[str]) -> None:
    assert called[0] == "find_station" and len(called) == 2
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert messages[-1]["content"][0].text


@pytest.mark.parametrize("stream", [False, True])
def test_agent(client: anthropic.Anthropic, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    called: list[str] = []
    for choice in TURNS:
        request = {**REQUEST, "messages": messages, "tools": ANTHROPIC_TOOLS}
        request["tool_choice"] = choice
        if stream:
            with client.messages.stream(**request) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**request)
        take_turn(messages, message, called)
    check_agent(messages, called)


def test_agent_async(server: ServerProcess, runner: asyncio.Runner) -> None:
    async def run() -> tuple[list[Any], list[str]]:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        called: list[str] = []
        async with connect(server) as client:
            for choice in TURNS:
                request = {**REQUEST, "messages": messages, "tools": ANTHROPIC_TOOLS}
                message = await client.messages.create(**request, tool_choice=choice)
                take_turn(messages, message, called)
        return messages, called

    check_agent(*runner.run(run()))


def test_tool_runner(client: anthropic.Anthropic) -> None:
    """The package's own loop. It begins with a server-side thread, and then does without."""
    called: list[str] = []

    @anthropic.beta_tool
    def find_station(city: City) -> str:
        """The weather station of a city."""
        called.append(city)
        return f"station-{city.lower()}"

    runner = client.beta.messages.tool_runner(
        **REQUEST,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[find_station],
        tool_choice=TURNS[0],
        max_iterations=3,
    )
    messages = list(runner)
    assert [message.stop_reason for message in messages] == ["tool_use"] * 3
    assert len(called) >= 2


def test_structured_output(
    client: anthropic.Anthropic, server: ServerProcess, runner: asyncio.Runner
) -> None:
    request: Any = {**REQUEST, "messages": ASK_FRANCE, "output_format": Report}
    got = client.messages.parse(**request).parsed_output
    assert isinstance(got, Report)
    with client.messages.stream(**request) as stream:
        assert stream.get_final_message().parsed_output == got

    async def again() -> Report | None:
        async with connect(server) as client:
            return (await client.messages.parse(**request)).parsed_output

    assert runner.run(again()) == got


def test_models_and_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**REQUEST, "model": "other"}, messages=ASK_FRANCE)
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(
            **{**REQUEST, "extra_body": {"temperature": -1}}, messages=ASK_FRANCE
        )
    assert [model.display_name for model in client.models.list()] == [NAME]
    model = client.models.retrieve(NAME)
    assert model.id == NAME and model.created_at.tzinfo is not None


def test_batches(client: anthropic.Anthropic) -> None:
    params = {"model": NAME, "max_tokens": 4, "messages": ASK_FRANCE}
    requests: list[Any] = [{"custom_id": f"r{i}", "params": params} for i in range(3)]
    requests.append({"custom_id": "absent", "params": {**params, "model": "absent"}})
    batches = client.messages.batches
    batch = batches.create(requests=requests)
    assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 4)
    deadline = time.monotonic() + 60
    while (batch := batches.retrieve(batch.id)).processing_status != "ended":
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)
    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (3, 1)
    assert batch.ended_at is not None and batch.ended_at >= batch.created_at
    found = {each.custom_id: each.result for each in batches.results(batch.id)}
    assert sorted(found) == ["absent", "r0", "r1", "r2"]
    for i in range(3):
        result = found[f"r{i}"]
        assert result.type == "succeeded" and result.message.usage.output_tokens == 4
    refused = found["absent"]
    assert refused.type == "errored" and refused.error.error.type == "not_found_error"
    assert [each.id for each in batches.list(limit=1)] == [batch.id]
    assert batches.cancel(batch.id).processing_status == "ended"
    assert batches.delete(batch.id).id == batch.id
    with pytest.raises(anthropic.NotFoundError, match="there is no batch"):
        batches.retrieve(batch.id)
