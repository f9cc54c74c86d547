"""What structured output costs a server: the first token, and the speed of 16 streams.

    ./bazelw run //tools/bench/structured -- --url http://127.0.0.1:8000
    ./bazelw run //tools/bench/structured -- --url http://127.0.0.1:8000,http://127.0.0.1:8001

The same chat is asked with a JSON Schema, whose grammar the server has compiled before, and
without one; the two take turns, and so do the servers. Any server with OpenAI's API and the field
`ignore_eos` can be measured. Figures are medians; `cost` is what the schema adds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from absl import app, flags

_URL = flags.DEFINE_list("url", ["http://127.0.0.1:8000"], "The servers.")
_STREAMS = flags.DEFINE_integer("streams", 16, "Requests at a time.", lower_bound=1)
_TOKENS = flags.DEFINE_integer("tokens", 128, "Tokens of an answer.", lower_bound=2)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds, of which medians are taken.", lower_bound=1)

# Simple enough for all back ends, and never complete within an answer.
_SCHEMA = {
    "type": "array",
    "minItems": 64,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "kind": {"enum": ["cat", "dog", "bird"]},
            "friends": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "age", "kind", "friends"],
        "additionalProperties": False,
    },
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "animals", "schema": _SCHEMA}}
_CHAT = [
    {"role": "user", "content": "List a hundred animals of a zoo with their friends, as JSON."}
]


@dataclass(frozen=True, slots=True)
class _Figures:
    first_token_s: float
    tokens_per_s: float


class _Server:
    """One that is measured."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rounds: dict[bool, list[_Figures]] = {False: [], True: []}
        listed = httpx.get(f"{url}/v1/models", timeout=30)
        self._model: str = listed.raise_for_status().json()["data"][0]["id"]

    async def round(self, client: httpx.AsyncClient, constrained: bool) -> None:
        """One request alone, then all at a time."""
        first, _ = await self._ask(client, constrained)
        began = time.perf_counter()
        asked = [self._ask(client, constrained) for _ in range(_STREAMS.value)]
        tokens = sum(count for _, count in await asyncio.gather(*asked))
        speed = tokens / (time.perf_counter() - began)
        self.rounds[constrained].append(_Figures(first, speed))

    def median(self, constrained: bool) -> _Figures:
        """Of all rounds."""
        rounds = self.rounds[constrained]
        return _Figures(
            statistics.median(each.first_token_s for each in rounds),
            statistics.median(each.tokens_per_s for each in rounds),
        )

    async def _ask(self, client: httpx.AsyncClient, constrained: bool) -> tuple[float, int]:
        """Seconds to the first token, and how many tokens there were."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": _CHAT,
            "max_tokens": _TOKENS.value,
            "temperature": 0.8,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if constrained:
            body["response_format"] = _FORMAT
        began, first, tokens = time.perf_counter(), 0.0, 0
        async with client.stream("POST", f"{self.url}/v1/chat/completions", json=body) as answer:
            if answer.is_error:
                sys.exit(f"{self.url}: {(await answer.aread()).decode()[:500]}")
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                choices = event["choices"]
                if not first and choices and choices[0]["delta"].get("content"):
                    first = time.perf_counter() - began
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
        return first, tokens


async def _measure(servers: Sequence[_Server]) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        for server in servers:
            for constrained in (False, True):  # compiles the grammar, fills caches
                await server.round(client, constrained)
                server.rounds[constrained].clear()
        for number in range(_ROUNDS.value):
            for server in servers:
                for constrained in (number % 2 == 0, number % 2 == 1):
                    await server.round(client, constrained)


def _main(argv: Sequence[str]) -> None:
    del argv
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    try:
        servers = [_Server(url) for url in _URL.value]
        asyncio.run(_measure(servers))
    except httpx.HTTPError as error:
        sys.exit(repr(error))
    heads = ("free", "schema", "cost", "free", "schema", "cost")
    print(f"{'':<28}{'first token, ms':^27}{f'tokens/s of {_STREAMS.value} streams':^27}")
    print(f"{'server':<28}" + "".join(f"{head:>9}" for head in heads))
    for server in servers:
        free, bound = server.median(False), server.median(True)
        firsts = (1e3 * free.first_token_s, 1e3 * bound.first_token_s)
        added = firsts[1] - firsts[0]
        slower = free.tokens_per_s / bound.tokens_per_s - 1
        print(
            f"{server.url:<28}{firsts[0]:>9.1f}{firsts[1]:>9.1f}{added:>9.1f}"
            f"{free.tokens_per_s:>9.0f}{bound.tokens_per_s:>9.0f}{slower:>9.1%}"
        )


if __name__ == "__main__":
    app.run(_main)
