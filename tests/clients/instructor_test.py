"""The `instructor` package: structured output in each of its modes that fit."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import instructor
import openai
import pytest

from tests.clients.weather import FRANCE, Report
from tests.e2e.server_process import NAME, ServerProcess

REQUEST: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": FRANCE}],
    "response_model": Report,
    "max_retries": 0,
}
OPENAI_MODES = [
    instructor.Mode.TOOLS,
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.RESPONSES_TOOLS,
]


@pytest.mark.parametrize("mode", OPENAI_MODES)
def test_openai(openai_url: str, mode: instructor.Mode, runner: asyncio.Runner) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=openai_url, api_key="none"), mode=mode)
    got = client.create(**REQUEST, temperature=0)
    assert isinstance(got, Report)

    async def again() -> Any:
        async with openai.AsyncOpenAI(base_url=openai_url, api_key="none") as connection:
            client = instructor.from_openai(connection, mode=mode)
            return await client.create(**REQUEST, temperature=0)

    assert runner.run(again()).model_dump() == got.model_dump()


@pytest.mark.parametrize("mode", OPENAI_MODES)
def test_partial_objects(openai_url: str, mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=openai_url, api_key="none"), mode=mode)
    *parts, last = client.create_partial(**REQUEST, temperature=0)
    assert parts and Report.model_validate(last.model_dump())


def test_lists(openai_url: str) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=openai_url, api_key="none"))
    got = client.create_iterable(**REQUEST, temperature=0, max_tokens=200)
    assert all(isinstance(item, Report) for item in got)


def test_anthropic(server: ServerProcess) -> None:
    connection = anthropic.Anthropic(base_url=server.base_url, api_key="none")
    client = instructor.from_anthropic(connection)
    assert isinstance(client.create(**REQUEST, max_tokens=100), Report)
