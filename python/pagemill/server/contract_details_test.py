"""Details of responses that clients of the reference system rely on, one row each."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.testing.fake_server import fake_server

Body = dict[str, Any]
CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
MINIMAL: Mapping[str, Body] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "seed": 1},
    COMPLETIONS: {"prompt": "ab", "max_tokens": 6, "seed": 1},
    EMBEDDINGS: {"input": "abcd", "truncate_prompt_tokens": 2},
}
# The event loop finds several tokens of a choice at a time.
BUNDLES = FakeOptions(steps_per_wakeup=7)
SNOWMEN = FakeOptions(next_token=lambda last, position, seed: "☃x".encode()[position % 4])


@dataclass(frozen=True)
class Row:
    """A request, and what its whole response or its list of events must satisfy."""

    name: str
    path: str
    payload: Body
    holds: Callable[[Any], bool]
    options: FakeOptions = field(default_factory=FakeOptions)


def choices(events: list[Body]) -> list[Body]:
    return [event["choices"][0] for event in events if event["choices"]]


def tokens_of_events(events: list[Body]) -> list[int]:
    return [len(choice["token_ids"]) for choice in choices(events) if "token_ids" in choice]


def completion_tokens(events: list[Body]) -> list[int]:
    return [event["usage"]["completion_tokens"] for event in events]


def with_usage(events: list[Body]) -> list[int]:
    return [at for at, event in enumerate(events) if "usage" in event]


def vector(token_ids: bytes) -> list[float]:
    """What the fake engine gives for a prompt."""
    return [math.cos(at + sum(token_ids)) for at in range(4)]


STREAM = {"stream": True, "return_token_ids": True}
ROWS = [
    *[
        Row(
            f"one event per token, {path}",
            path,
            {**STREAM, "max_tokens": 200},
            lambda events: tokens_of_events(events) == [1] * 200,
            BUNDLES,
        )
        for path in (CHAT, COMPLETIONS)
    ],
    *[
        Row(
            f"stream_interval, {path}",
            path,
            {**STREAM, "max_tokens": 12, "stream_interval": 5},
            lambda events: tokens_of_events(events) == [1, 5, 5, 1],
        )
        for path in (CHAT, COMPLETIONS)
    ],
    Row(
        "all roles come first and count no token",
        CHAT,
        {**STREAM, "n": 2, "stream_options": {"continuous_usage_stats": True}},
        lambda events: (
            [event["choices"][0]["delta"].get("role") for event in events[:3]]
            == ["assistant", "assistant", None]
            and completion_tokens(events) == [0, 0, *range(1, 13), 12]
        ),
    ),
    Row(
        "continuous usage of tokens that came together",
        COMPLETIONS,
        {**STREAM, "max_tokens": 50, "stream_options": {"continuous_usage_stats": True}},
        lambda events: completion_tokens(events) == [*range(1, 51), 50],
        BUNDLES,
    ),
    *[
        Row(
            f"include_usage: false, {path}",
            path,
            {**STREAM, "stream_options": {"include_usage": False, "continuous_usage_stats": True}},
            lambda events: with_usage(events) == [],
        )
        for path in (CHAT, COMPLETIONS)
    ],
    Row(
        "prompt_logprobs is null, chat",
        CHAT,
        {},
        lambda whole: whole["prompt_logprobs"] is None,
    ),
    Row(
        "prompt_logprobs is null, completions",
        COMPLETIONS,
        {"n": 2},
        lambda whole: [c["prompt_logprobs"] for c in whole["choices"]] == [None, None],
    ),
    Row(
        "echo of token ids shows control tokens",
        COMPLETIONS,
        {"prompt": [97, 0, 98], "echo": True, "max_tokens": 0},
        lambda whole: whole["choices"][0]["text"] == "a<eos>b",
    ),
    Row(
        "echo of text repeats what was sent",
        COMPLETIONS,
        {"prompt": "a☃b", "echo": True, "max_tokens": 0},
        lambda whole: whole["choices"][0]["text"] == "a☃b",
    ),
    *[
        Row(
            f"echo of a prompt truncated on the {side}",
            COMPLETIONS,
            {
                "prompt": "abcd",
                "echo": True,
                "max_tokens": 0,
                "logprobs": 0,
                "truncate_prompt_tokens": 2,
                "truncation_side": side,
            },
            lambda whole, text=text: (
                whole["choices"][0]["text"] == text
                and whole["choices"][0]["logprobs"]["tokens"] == list(text)
            ),
        )
        for side, text in (("left", "cd"), ("right", "ab"))
    ],
    *[
        Row(
            f"embedding of an input truncated on the {side}",
            EMBEDDINGS,
            payload,
            lambda whole, kept=kept: whole["data"][0]["embedding"] == pytest.approx(vector(kept)),
            FakeOptions(pooled_size=4),
        )
        for side, payload, kept in (
            ("right by default", {}, b"ab"),
            ("left", {"truncation_side": "left"}, b"cd"),
        )
    ],
    Row(
        "the string null is a text",
        COMPLETIONS,
        {"prompt": "null", "stop": "null", "echo": True, "max_tokens": 0},
        lambda whole: whole["choices"][0]["text"] == "null",
    ),
    Row(
        "text_offset after characters of several tokens",
        COMPLETIONS,
        {"logprobs": 0, "max_tokens": 8},
        lambda whole: (
            whole["choices"][0]["text"] == "☃x☃x"
            and whole["choices"][0]["logprobs"]["text_offset"] == [0, 0, 0, 1, 2, 2, 2, 3]
        ),
        SNOWMEN,
    ),
    Row(
        "text_offset with echo",
        COMPLETIONS,
        {"prompt": "é☃", "echo": True, "logprobs": 0, "max_tokens": 4},
        lambda whole: (
            whole["choices"][0]["text"] == "é☃☃x"
            and whole["choices"][0]["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 2, 2, 2, 3]
        ),
        SNOWMEN,
    ),
    Row(
        "text_offset of tokens named by their ids",
        COMPLETIONS,
        {"logprobs": 0, "max_tokens": 3, "return_tokens_as_token_ids": True},
        lambda whole: whole["choices"][0]["logprobs"]["text_offset"] == [0, 1, 2],
    ),
    Row(
        "text_offset in a stream",
        COMPLETIONS,
        {**STREAM, "logprobs": 0, "max_tokens": 8},
        lambda events: (
            sum((c["logprobs"]["text_offset"] for c in choices(events)), [])
            == [0, 0, 0, 1, 2, 2, 2, 3]
        ),
        SNOWMEN,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_detail(row: Row) -> None:
    async def answer() -> Any:
        payload = {**MINIMAL[row.path], **row.payload}
        async with fake_server(row.options) as server:
            response = await server.client.post(row.path, json=payload)
        assert response.status_code == 200, response.text
        if not payload.get("stream"):
            return response.json()
        events = response.text.split("\n\n")[:-2]
        return [msgspec.json.decode(event.removeprefix("data: ")) for event in events]

    got = asyncio.run(answer())
    assert row.holds(got), got
