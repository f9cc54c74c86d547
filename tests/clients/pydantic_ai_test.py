"""The `pydantic-ai` package: agents over both of OpenAI's APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, NativeOutput, RunContext, ToolOutput
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings, ToolChoice

from tests.clients.weather import FRANCE, QUESTION, TOOLS, Report
from tests.e2e.server_process import NAME

SETTINGS = ModelSettings(temperature=0, max_tokens=100, parallel_tool_calls=False)


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
def model(request: pytest.FixtureRequest, openai_url: str) -> Model[Any]:
    return request.param(NAME, provider=OpenAIProvider(base_url=openai_url, api_key="none"))


def test_chat(model: Model[Any], runner: asyncio.Runner) -> None:
    agent = Agent(model, model_settings=SETTINGS)

    async def run() -> tuple[str, str]:
        whole = await agent.run(FRANCE)
        async with agent.run_stream(FRANCE) as stream:
            pieces = [text async for text in stream.stream_text(delta=True)]
        return whole.output, "".join(pieces)

    text, streamed = runner.run(run())
    assert "Paris" in text and streamed == text
    assert agent.run_sync(FRANCE).output == text


def turn(context: RunContext[None]) -> ModelSettings:
    """What each turn of the agent has to do: call a tool by its name, call any, answer."""
    choices: dict[int, ToolChoice] = {1: ["find_station"], 2: "required"}
    return {**SETTINGS, "tool_choice": choices.get(context.run_step, "none")}


@pytest.mark.parametrize("stream", [False, True])
def test_agent(model: Model[Any], runner: asyncio.Runner, stream: bool) -> None:
    agent = Agent(model, tools=list(TOOLS.values()), model_settings=turn)

    async def run() -> tuple[str, list[ModelMessage]]:
        if not stream:
            whole = await agent.run(QUESTION)
            return whole.output, whole.all_messages()
        async with agent.run_stream(QUESTION) as result:
            return await result.get_output(), result.all_messages()

    answer, messages = runner.run(run())
    parts = [part for message in messages for part in message.parts]
    called = [part.tool_name for part in parts if isinstance(part, ToolCallPart)]
    assert called[0] == "find_station" and len(called) == 2
    assert answer


@pytest.mark.parametrize("output", [ToolOutput(Report), NativeOutput(Report)])
def test_structured_output(model: Model[Any], runner: asyncio.Runner, output: Any) -> None:
    agent = Agent(model, output_type=output, model_settings=SETTINGS, retries=0)

    async def run() -> tuple[Report, Report]:
        whole = await agent.run(FRANCE)
        async with agent.run_stream(FRANCE) as stream:
            return whole.output, await stream.get_output()

    whole, streamed = runner.run(run())
    assert isinstance(whole, Report) and streamed == whole
