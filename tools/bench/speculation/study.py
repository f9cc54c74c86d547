"""Time of a token with n-gram drafts beside that without, for one request at a time.

    PYTHONPATH=python:. python3.11 -m tools.bench.speculation.study MODEL.gguf --threads=2

Two engines in one process answer each prompt in turns, so that what else the machine does meets
both. Times are of decoding: the prompt is in the prefix cache. "edit" repeats its prompt with small
changes, "free" is sampled at temperature 1, so that guesses fail.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import LLM, SamplingParams

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
_FREE = "Once upon a time, in a village by the sea,"


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and how its answer is sampled."""

    name: str
    prompt: str
    sampling: SamplingParams


_CASES = (
    Case("edit", _EDIT, SamplingParams(temperature=0.0, max_tokens=200)),
    Case("free", _FREE, SamplingParams(temperature=1.0, top_p=1.0, seed=5, max_tokens=200)),
)


def run(llm: LLM, case: Case) -> tuple[float, list[int]]:
    """Answers a prompt; returns the seconds of each token, and the tokens."""
    begin = time.perf_counter()
    (output,) = llm.generate(case.prompt, case.sampling)
    tokens = output.choices[0].token_ids
    return (time.perf_counter() - begin) / len(tokens), tokens


def compare(engines: Sequence[LLM], case: Case, rounds: int) -> None:
    """Prints medians of `rounds` answers of each engine: without drafts, and with."""
    tokens = [run(llm, case)[1] for llm in engines]  # fills the prefix caches
    assert tokens[0] == tokens[1], "drafts changed the answer"
    pairs = [tuple(run(llm, case)[0] for llm in engines) for _ in range(rounds)]
    plain, drafted = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(plain / drafted for plain, drafted in pairs)
    cells = (case.name, len(tokens[0]), f"{1e3 * plain:.2f}", f"{1e3 * drafted:.2f}")
    print("|", " | ".join(map(str, cells)), "|", f"{ratio:.2f}", "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--drafts", type=int, default=8, help="most drafts of a step")
    arguments = parser.parse_args()
    options = {"max_model_len": 1024, "max_num_seqs": 4, "threads": arguments.threads}
    config = {"method": "ngram", "num_speculative_tokens": arguments.drafts}
    with (
        LLM(arguments.model, **options) as plain,
        LLM(arguments.model, speculative_config=config, **options) as drafting,
    ):
        print("| prompt | tokens | ms a token | with drafts | ratio |")
        print("|---|---|---|---|---|")
        for case in _CASES:
            compare((plain, drafting), case, arguments.rounds)


if __name__ == "__main__":
    main()
