"""How well a model calls functions through a server: questions of the Berkeley leaderboard.

    ./bazelw run //tools/bench/function_calls -- --url http://127.0.0.1:8000
    ./bazelw run //tools/bench/function_calls -- --choices auto --num_cases 50 --out calls.json

`formed`: complete answers whose calls are JSON, of existing functions, with arguments that their
schemas allow; `called`: answers with a call; `right`: answers whose calls are exactly the ones
asked for.
Any server with OpenAI's API can be measured: run it twice to compare two.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
from absl import app, flags
from tqdm import tqdm

from tools.bench.function_calls.asking import AskError, Outcome, ask_all
from tools.bench.function_calls.cases import CATEGORIES, Case, read_cases

_URL = flags.DEFINE_string("url", "http://127.0.0.1:8000", "The server.")
_MODEL = flags.DEFINE_string("model", None, "Its model. Default: the first that it lists.")
_CATEGORIES = flags.DEFINE_list("categories", list(CATEGORIES), "Which questions.")
_CHOICES = flags.DEFINE_list("choices", ["required", "auto"], "Values of `tool_choice`.")
_NUM_CASES = flags.DEFINE_integer("num_cases", 0, "The first of each category; 0: all.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 512, "Tokens of an answer.", lower_bound=1)
_CONCURRENCY = flags.DEFINE_integer("concurrency", 16, "Questions at a time.", lower_bound=1)
_OUT = flags.DEFINE_string("out", None, "Where to write the answers and figures, as JSON.")


async def _measure(model: str, cases: Sequence[Case], choice: str, title: str) -> list[Outcome]:
    asked = ask_all(
        _URL.value,
        model,
        cases,
        tool_choice=choice,
        max_tokens=_MAX_TOKENS.value,
        concurrency=_CONCURRENCY.value,
    )
    outcomes: list[Outcome] = []
    with tqdm(total=len(cases), desc=title, leave=False) as bar:
        async for each in asked:
            outcomes.append(each)
            bar.update()
    return outcomes


def _figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    return {
        "cases": len(outcomes),
        "formed": sum(not each.faults and not each.is_cut for each in outcomes) / len(outcomes),
        "called": sum(each.has_calls for each in outcomes) / len(outcomes),
        "right": sum(each.is_right for each in outcomes) / len(outcomes),
    }


def _main(argv: Sequence[str]) -> None:
    del argv
    model = _MODEL.value
    if model is None:
        model = httpx.get(f"{_URL.value}/v1/models", timeout=30).json()["data"][0]["id"]
    results: list[dict[str, object]] = []
    print(f"{'category':<16}{'tool_choice':<13}{'cases':>6}{'formed':>9}{'called':>9}{'right':>9}")
    for choice in _CHOICES.value:
        for category in _CATEGORIES.value:
            cases = read_cases(category)[: _NUM_CASES.value or None]
            try:
                outcomes = asyncio.run(_measure(model, cases, choice, f"{category} {choice}"))
            except (AskError, httpx.HTTPError) as error:
                sys.exit(f"{_URL.value}: {error!r}")
            found = _figures(outcomes)
            rates = "".join(f"{found[key]:>9.1%}" for key in ("formed", "called", "right"))
            print(f"{category:<16}{choice:<13}{found['cases']:>6}{rates}", flush=True)
            answers = {
                each.case.name: {"answer": each.answer, "faults": each.faults} for each in outcomes
            }
            row = {"category": category, "tool_choice": choice, **found, "answers": answers}
            results.append(row)
    if _OUT.value is not None:
        Path(_OUT.value).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    app.run(_main)
