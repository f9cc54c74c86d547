"""The `openai-agents` package: its runner's loop, over both of OpenAI's APIs."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunHooks,
    Runner,
    function_tool,
    set_tracing_disabled,
)

from tests.clients.weather import FRANCE, QUESTION, TOOLS, Report
from tests.e2e.server_process import NAME

set_tracing_disabled(True)  # traces would be sent to OpenAI
SETTINGS = ModelSettings(temperature=0, max_tokens=100)


@pytest.fixture(params=[OpenAIChatCompletionsModel, OpenAIResponsesModel])
def model(request: pytest.FixtureRequest, openai_url: str) -> Model:
    client = openai.AsyncOpenAI(base_url=openai_url, api_key="none", max_retries=0)
    return request.param(model=NAME, openai_client=client)


def with_choice(choice: str) -> ModelSettings:
    return dataclasses.replace(SETTINGS, tool_choice=choice, parallel_tool_calls=False)


class Turns(RunHooks[None]):
    """Says after each call of a tool what the next turn has to do."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.called.append(tool.name)
        agent.model_settings = with_choice("required" if len(self.called) == 1 else "none")


def weather_agent(model: Model) -> Agent[None]:
    return Agent(
        name="weather",
        model=model,
        tools=[function_tool(tool) for tool in TOOLS.values()],
        model_settings=with_choice("find_station"),
        reset_tool_choice=False,
    )


def check_agent(called: list[str], answer: Any) -> None:
    assert called[0] == "find_station" and len(called) == 2
    assert isinstance(answer, str) and answer


def test_agent(model: Model, runner: asyncio.Runner) -> None:
    turns = Turns()
    result = runner.run(Runner.run(weather_agent(model), QUESTION, hooks=turns))
    check_agent(turns.called, result.final_output)


def test_agent_stream(model: Model, runner: asyncio.Runner) -> None:
    async def run() -> tuple[str, Any]:
        result = Runner.run_streamed(weather_agent(model), QUESTION, hooks=turns)
        text = ""
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                text += event.data.delta
        return text, result.final_output

    turns = Turns()
    text, answer = runner.run(run())
    assert text == answer
    check_agent(turns.called, answer)


def test_agent_sync(openai_url: str) -> None:
    client = openai.AsyncOpenAI(base_url=openai_url, api_key="none", max_retries=0)
    agent = Agent(
        name="answer",
        model=OpenAIResponsesModel(model=NAME, openai_client=client),
        model_settings=SETTINGS,
    )
    assert "Paris" in Runner.run_sync(agent, FRANCE).final_output


def test_handoff(model: Model, runner: asyncio.Runner) -> None:
    """The first agent passes the conversation on to the second, which answers."""
    second = Agent(name="answer", model=model, model_settings=SETTINGS)
    first = Agent(
        name="triage",
        model=model,
        handoffs=[second],
        model_settings=with_choice("transfer_to_answer"),
    )
    result = runner.run(Runner.run(first, FRANCE))
    assert result.last_agent is second
    assert result.final_output


def test_structured_output(model: Model, runner: asyncio.Runner) -> None:
    agent = Agent(name="report", model=model, model_settings=SETTINGS, output_type=Report)
    result = runner.run(Runner.run(agent, FRANCE))
    assert isinstance(result.final_output, Report)
