"""Time per token with and without drafts, for one request at a time.

    PYTHONPATH=python:. python3.11 -m tools.bench.speculation.study MODEL.gguf --threads=2
    ... study TARGET.gguf --draft_model=SMALL.gguf --drafts=5

Two engines in one process answer each prompt in turns, so that other load affects both. Times are
of decoding: the prompt is in the prefix cache. "edit" repeats its prompt with small changes, "code"
is new code, "free" is sampled at temperature 1, so that drafts fail. "prompt" is the time of a
prompt of 500 tokens that is not cached, to its first token.

With a draft model, the bound: k drafts that are all right produce k + 1 tokens in the time of a
step with k + 1 tokens and k passes of the draft model. The last lines print these times.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from absl import app, flags
from pagemill import LLM, SamplingParams

_THREADS = flags.DEFINE_integer("threads", 0, "Threads of each engine; 0: one for each core.")
_ROUNDS = flags.DEFINE_integer("rounds", 10, "Rounds, of which medians are taken.", lower_bound=1)
_DRAFTS = flags.DEFINE_integer("drafts", 8, "Most drafts of a step.", lower_bound=1)
_DRAFT_MODEL = flags.DEFINE_string("draft_model", None, "Model that drafts. Default: n-grams.")
_ONLY = flags.DEFINE_string("cases", "", "Beginning of the names of the prompts to run.")

_CODE = '''\
def load_rows(path, separator=","):
    """Returns the fields of each line that is not empty."""
    rows = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if not line:
                continue
            rows.append(line.split(separator))
    return rows


def column(rows, index):
    """Returns one field of each row that has it."""
    values = []
    for row in rows:
        if index < len(row):
            values.append(float(row[index]))
    return values


def summarize(path, index):
    """Returns how many rows there are, and the bounds of one of their fields."""
    rows = load_rows(path)
    values = column(rows, index)
    return {"rows": len(rows), "min": min(values), "max": max(values)}
'''
_EDIT = f"""\
Here is a Python module:

```python
{_CODE}```

The same module with the function `column` renamed to `field`:

```python
"""
_NEW = (
    "# Python 3\n\ndef is_palindrome(text: str) -> bool:\n"
    '    """True if the letters of `text` read the same backwards."""\n',
    "import heapq\n\n\nclass Graph:\n"
    '    """A directed graph with weighted edges, and its shortest paths by Dijkstra."""\n\n'
    "    def __init__(self):\n",
    "-- The ten customers with the largest sum of orders in 2023, with their cities.\n"
    "-- Tables: customers(id, name, city_id), cities(id, name), orders(id, customer_id, total,"
    " ordered_at)\nSELECT",
)
_FREE = "Once upon a time, in a village by the sea,"
_PROMPT_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and how its answer is sampled."""

    name: str
    prompt: str
    sampling: SamplingParams


_GREEDY = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
_CASES = (
    Case("edit", _EDIT, SamplingParams(temperature=0.0, max_tokens=200)),
    *(Case(f"code {number}", prompt, _GREEDY) for number, prompt in enumerate(_NEW, 1)),
    Case("free", _FREE, SamplingParams(temperature=1.0, top_p=1.0, seed=5, max_tokens=200)),
)


def run(llm: LLM, case: Case) -> tuple[float, list[int]]:
    """Answers a prompt; returns the seconds of each token, and the tokens."""
    begin = time.perf_counter()
    (output,) = llm.generate(case.prompt, case.sampling)
    tokens = output.choices[0].token_ids
    return (time.perf_counter() - begin) / len(tokens), tokens


def compare(engines: Sequence[LLM], case: Case, rounds: int, *, exact: bool) -> None:
    """Prints medians of `rounds` answers of each engine: without drafts, and with. `exact`: their
    answers are equal, sampled ones too."""
    tokens = [run(llm, case)[1] for llm in engines]  # fills the prefix caches
    if exact or case.sampling.temperature == 0.0:
        assert tokens[0] == tokens[1], "drafts changed the answer"
    before = engines[1].stats()
    pairs = [tuple(run(llm, case)[0] for llm in engines) for _ in range(rounds)]
    after = engines[1].stats()
    drafts = after.draft_tokens - before.draft_tokens
    accepted = after.accepted_draft_tokens - before.accepted_draft_tokens
    share = f"{accepted / drafts:.2f}" if drafts else "-"
    plain, drafted = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(plain / drafted for plain, drafted in pairs)
    cells = (
        case.name,
        len(tokens[0]),
        f"{1e3 * plain:.2f}",
        f"{1e3 * drafted:.2f}",
        share,
        f"{drafts / rounds:.0f}",
        f"{ratio:.2f}",
    )
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def compare_prompts(engines: Sequence[LLM], rounds: int) -> None:
    """Prints the medians of the time to the first token of prompts that are new."""
    first = itertools.count(1000)
    sampling = SamplingParams(temperature=0.0, max_tokens=2)

    def seconds(llm: LLM) -> float:
        # Each prompt begins with a different token.
        prompt = [next(first), *range(2000, 2000 + _PROMPT_TOKENS - 1)]
        begin = time.perf_counter()
        llm.generate(prompt, sampling)
        return time.perf_counter() - begin

    pairs = [tuple(seconds(llm) for llm in engines) for _ in range(rounds)]
    plain, drafted = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"| prompt | {_PROMPT_TOKENS} | {plain:.0f} in all | {drafted:.0f} in all | | | |")


def decode_seconds(llm: LLM, rounds: int) -> float:
    """The median time of a token of one request, without drafts."""
    case = Case("", _NEW[0], SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    run(llm, case)
    return statistics.median(run(llm, case)[0] for _ in range(rounds))


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 2:
        raise app.UsageError("one argument is needed: the model")
    model, draft_model, rounds = arguments[1], _DRAFT_MODEL.value, _ROUNDS.value
    options: dict[str, Any] = {
        "max_model_len": 1024,
        "max_num_seqs": 4,
        "threads": _THREADS.value,
    }
    config: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": _DRAFTS.value}
    if draft_model:
        config |= {"method": "draft_model", "model": draft_model}
    with (
        LLM(model, **options) as plain,
        LLM(model, speculative_config=config, **options) as drafting,
    ):
        engines = (plain, drafting)
        print("| prompt | tokens | ms a token | with drafts | accepted | drafts | ratio |")
        print("|---|---|---|---|---|---|---|")
        for case in _CASES:
            if case.name.startswith(_ONLY.value):
                compare(engines, case, rounds, exact=not draft_model)
        compare_prompts(engines, rounds)
        if not draft_model:
            return
        step = decode_seconds(plain, rounds)
    with LLM(draft_model, **options) as small:
        share = decode_seconds(small, rounds) / step
    print(f"a step of the model: {1e3 * step:.2f} ms; a pass of the draft model: {share:.2f} of it")


if __name__ == "__main__":
    app.run(main)
