"""The `litellm` package: OpenAI's and Anthropic's API of the server behind one interface."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from tests.clients.weather import FRANCE, PARAMETERS, QUESTION, TOOLS, Report
from tests.e2e.server_process import NAME, ServerProcess

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise the import fetches a list
import litellm  # noqa: E402

ASK_FRANCE: Any = [{"role": "user", "content": FRANCE}]
LITELLM_TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__,
            "parameters": PARAMETERS[name],
        },
    }
    for name, tool in TOOLS.items()
]
TURNS: Sequence[Any] = (
    {"type": "function", "function": {"name": "find_station"}},
    "required",
    "none",
)


@pytest.fixture(params=["openai", "hosted_vllm", "anthropic"])
def chat(request: pytest.FixtureRequest, server: ServerProcess) -> dict[str, Any]:
    """The arguments that name the server, one way for each provider that fits."""
    provider = request.param
    url = server.base_url if provider == "anthropic" else f"{server.base_url}/v1"
    limits = {"temperature": 0, "max_tokens": 100}
    return {"model": f"{provider}/{NAME}", "api_base": url, "api_key": "none", **limits}


def test_chat(chat: dict[str, Any], runner: asyncio.Runner) -> None:
    whole = litellm.completion(**chat, messages=ASK_FRANCE)
    text = whole.choices[0].message.content
    assert "Paris" in text and whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens > 1
    chunks = list(litellm.completion(**chat, messages=ASK_FRANCE, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text

    async def again() -> tuple[str, str]:
        got = await litellm.acompletion(**chat, messages=ASK_FRANCE)
        stream = await litellm.acompletion(**chat, messages=ASK_FRANCE, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return got.choices[0].message.content, "".join(pieces)

    assert runner.run(again()) == (text, text)


@pytest.mark.parametrize("stream", [False, True])
def test_agent(chat: dict[str, Any], stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    called: list[str] = []
    for choice in TURNS:
        request = {**chat, "messages": messages, "tools": LITELLM_TOOLS, "tool_choice": choice}
        got: Any = litellm.completion(**request, parallel_tool_calls=False, stream=stream)
        if stream:
            got = litellm.stream_chunk_builder(list(got), messages=messages)
        message = got.choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            called.append(call.function.name)
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert called[0] == "find_station" and len(called) == 2
    assert messages[-1].content


def test_structured_output(chat: dict[str, Any], runner: asyncio.Runner) -> None:
    request: Any = {**chat, "messages": ASK_FRANCE, "response_format": Report}
    text = litellm.completion(**request).choices[0].message.content
    report = Report.model_validate_json(text)

    async def again() -> str:
        return (await litellm.acompletion(**request)).choices[0].message.content

    assert Report.model_validate_json(runner.run(again())) == report


def test_text_completion(openai_url: str) -> None:
    request: Any = {
        "model": f"text-completion-openai/{NAME}",
        "api_base": openai_url,
        "api_key": "none",
        "prompt": "Once upon a time",
        "temperature": 0,
        "max_tokens": 12,
    }
    text = litellm.text_completion(**request).choices[0].text
    assert text
    chunks = litellm.text_completion(**request, stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == text


def test_responses(openai_url: str, runner: asyncio.Runner) -> None:
    request: Any = {
        "model": f"openai/{NAME}",
        "api_base": openai_url,
        "api_key": "none",
        "input": FRANCE,
        "temperature": 0,
        "max_output_tokens": 100,
    }
    whole: Any = litellm.responses(**request)
    text = whole.output[0].content[0].text
    assert "Paris" in text
    events: Any = litellm.responses(**request, stream=True)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == text

    async def again() -> str:
        got: Any = await litellm.aresponses(**request)
        return got.output[0].content[0].text

    assert runner.run(again()) == text


def test_messages(server: ServerProcess, runner: asyncio.Runner) -> None:
    async def run() -> Any:
        return await litellm.anthropic_messages(
            model=f"anthropic/{NAME}",
            api_base=server.base_url,
            api_key="none",
            messages=ASK_FRANCE,
            max_tokens=100,
            temperature=0,
        )

    assert "Paris" in runner.run(run())["content"][0]["text"]
