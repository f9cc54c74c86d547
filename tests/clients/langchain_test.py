"""The `langchain-openai` package: chat and completion models, over both of OpenAI's APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

from tests.clients.weather import FRANCE, QUESTION, TOOLS, Report
from tests.e2e.server_process import NAME

LANGCHAIN_TOOLS = [tool(function) for function in TOOLS.values()]
TURNS = ("find_station", "required", "none")


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest, openai_url: str) -> ChatOpenAI:
    return ChatOpenAI(
        model=NAME,
        base_url=openai_url,
        api_key="none",
        temperature=0,
        max_tokens=100,
        max_retries=0,
        use_responses_api=request.param == "responses",
    )


def test_chat(model: ChatOpenAI, runner: asyncio.Runner) -> None:
    whole = model.invoke(FRANCE)
    assert "Paris" in whole.text
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] > 1
    assert "".join(chunk.text for chunk in model.stream(FRANCE)) == whole.text

    async def again() -> tuple[str, str]:
        got = await model.ainvoke(FRANCE)
        return got.text, "".join([chunk.text async for chunk in model.astream(FRANCE)])

    assert runner.run(again()) == (whole.text, whole.text)


def ask(model: Any, messages: list[BaseMessage], way: str, runner: asyncio.Runner) -> AIMessage:
    """The model's answer: whole, of a stream, or of a coroutine."""
    if way == "invoke":
        return model.invoke(messages)
    if way == "ainvoke":
        return runner.run(model.ainvoke(messages))
    first, *others = model.stream(messages)
    for chunk in others:
        first += chunk
    return first


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
def test_agent(model: ChatOpenAI, way: str, runner: asyncio.Runner) -> None:
    messages: list[BaseMessage] = [HumanMessage(QUESTION)]
    called: list[str] = []
    for choice in TURNS:
        bound = model.bind_tools(LANGCHAIN_TOOLS, tool_choice=choice, parallel_tool_calls=False)
        message = ask(bound, messages, way, runner)
        messages.append(message)
        for call in message.tool_calls:
            called.append(call["name"])
            result = TOOLS[call["name"]](**call["args"])
            messages.append(ToolMessage(result, tool_call_id=call["id"]))
    assert called[0] == "find_station" and len(called) == 2
    assert messages[-1].text


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model: ChatOpenAI, method: Any, runner: asyncio.Runner) -> None:
    structured = model.with_structured_output(Report, method=method)
    got = structured.invoke(FRANCE)
    assert isinstance(got, Report)
    assert runner.run(structured.ainvoke(FRANCE)) == got
    *_, last = structured.stream(FRANCE)
    assert last == got


def test_completion(openai_url: str, runner: asyncio.Runner) -> None:
    model = OpenAI(model=NAME, base_url=openai_url, api_key="none", temperature=0, max_tokens=12)
    text = model.invoke("Once upon a time")
    assert text
    assert "".join(model.stream("Once upon a time")) == text
    assert runner.run(model.ainvoke("Once upon a time")) == text
