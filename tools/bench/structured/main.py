"""What structured output costs: streams with and without a JSON Schema, in turns.

    ./bazelw run //tools/bench/structured -- --urls http://127.0.0.1:8000,http://127.0.0.1:8001

Servers with OpenAI's API that return `token_ids`, Pagemill and vLLM for example; all are measured
in one run, one at a time. The first turn, which compiles the grammar, does not count. Figures are
medians of the turns: `first`, the time to the first token; `rate`, tokens per second of all streams
while all of them write. Free streams ignore the end of text, so that they are as long as the
others, which write an array of `--num_items` objects.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import httpx
from absl import app, flags

from tools.bench.structured.streams import Run, run_streams

_URLS = flags.DEFINE_list("urls", ["http://127.0.0.1:8000"], "The servers.")
_TURNS = flags.DEFINE_integer("turns", 5, "Times that each kind of streams runs.", lower_bound=1)
_STREAMS = flags.DEFINE_integer("streams", 16, "Streams at once.", lower_bound=1)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 128, "Tokens of a stream.", lower_bound=2)
_NUM_ITEMS = flags.DEFINE_integer("num_items", 32, "Objects that an output has.", lower_bound=1)


def _schema(num_items: int) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "is_member": {"type": "boolean"},
        "role": {"enum": ["reader", "writer", "owner"]},
    }
    person = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "array", "items": person, "minItems": num_items, "maxItems": num_items}


def _bodies(model: str, *, with_schema: bool) -> list[dict[str, Any]]:
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": _MAX_TOKENS.value,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    if with_schema:
        schema = {"name": "people", "schema": _schema(_NUM_ITEMS.value)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    else:
        body["ignore_eos"] = True
    return [
        {**body, "messages": [{"role": "user", "content": f"List people of town {i} as JSON."}]}
        for i in range(_STREAMS.value)
    ]


def _model(url: str) -> str:
    """The first model that a server lists."""
    response = httpx.get(f"{url}/v1/models", timeout=30).raise_for_status()
    return response.json()["data"][0]["id"]


def _measure(urls: Sequence[str]) -> dict[str, dict[bool, list[Run]]]:
    models = {url: _model(url) for url in urls}
    runs: dict[str, dict[bool, list[Run]]] = {url: {False: [], True: []} for url in urls}
    for turn in range(_TURNS.value + 1):
        for url in urls:
            for with_schema in (False, True):
                bodies = _bodies(models[url], with_schema=with_schema)
                run = asyncio.run(run_streams(url, bodies))
                if turn:
                    runs[url][with_schema].append(run)
    return runs


def _figures(runs: Sequence[Run]) -> tuple[float, float]:
    """The time to the first token in milliseconds, and the rate."""
    first = statistics.median(each for run in runs for each in run.first_s)
    return 1e3 * first, statistics.median(run.tokens_per_s for run in runs)


def _main(argv: Sequence[str]) -> None:
    del argv
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        measured = _measure(_URLS.value)
    except httpx.HTTPError as error:
        sys.exit(f"a server does not answer as it should: {error!r}")
    print(f"{'server':<32}{'output':<9}{'first, ms':>11}{'rate, 1/s':>11}")
    for url, runs in measured.items():
        free, schema = _figures(runs[False]), _figures(runs[True])
        for name, (first, rate) in (("free", free), ("schema", schema)):
            print(f"{url:<32}{name:<9}{first:>11.1f}{rate:>11.1f}")
        cost = 1 - schema[1] / free[1] if free[1] else float("nan")
        print(f"{url:<32}{'cost':<9}{schema[0] - free[0]:>+11.1f}{cost:>11.1%}")


if __name__ == "__main__":
    app.run(_main)
