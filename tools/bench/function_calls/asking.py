"""Asks a server the questions of cases, and says how good its calls are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema_rs

from tools.bench.function_calls.cases import Call, Case
from tools.bench.function_calls.scoring import matches

_TIMEOUT_S = 900


class AskError(Exception):
    """The server refused a question; the message has its words."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: Case
    answer: dict[str, Any]
    """The message of the answer."""
    faults: Sequence[str]
    """What is wrong with the form of its calls."""
    is_cut: bool
    """It was too long."""
    is_right: bool
    """The calls are the ones that were asked for."""

    @property
    def has_calls(self) -> bool:
        """Whether there is any call."""
        return bool(self.answer.get("tool_calls"))


async def ask_all(
    base_url: str,
    model: str,
    cases: Sequence[Case],
    *,
    tool_choice: str,
    max_tokens: int,
    concurrency: int,
) -> AsyncIterator[Outcome]:
    """Asks each case, greedily, at most `concurrency` at a time; outcomes come as they are ready.

    Raises:
        AskError: the server refused one.
    """
    turns = asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT_S) as client:

        async def ask(case: Case) -> Outcome:
            body = {
                "model": model,
                "messages": case.messages,
                "tools": case.tools,
                "tool_choice": tool_choice,
                "max_tokens": max_tokens,
                "temperature": 0,
            }
            async with turns:
                response = await client.post("/v1/chat/completions", json=body)
            if response.status_code != 200:
                raise AskError(f"{case.name}: {response.status_code} {response.text}")
            return outcome(case, response.json()["choices"][0])

        tasks = [asyncio.create_task(ask(case)) for case in cases]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()


def outcome(case: Case, choice: dict[str, Any]) -> Outcome:
    """Judges one choice of a chat completion."""
    message = choice["message"]
    calls: list[Call] = []
    faults: list[str] = []
    for each in message.get("tool_calls") or []:
        function = each["function"]
        name = function["name"]
        try:
            arguments = json.loads(function["arguments"])
        except ValueError as error:
            faults.append(f"{name}: {error}")
            continue
        schema = case.parameters(name)
        if schema is None:
            faults.append(f"{name}: there is no such function")
        elif not jsonschema_rs.is_valid(schema, arguments):
            faults.append(f"{name}: {function['arguments']} is not what its schema says")
        calls.append(Call(name, arguments))
    is_cut = choice["finish_reason"] == "length"
    is_right = not faults and not is_cut and matches(calls, case.expected)
    return Outcome(case, message, faults, is_cut, is_right)
