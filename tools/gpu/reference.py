"""Results to compare with, beside the checkpoint that they are of."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.gpu.started import Answer, Started

_FILE = "reference.json"
# Sums of f32 in another order, in models of a few layers whose logits are below 10. A wrong window,
# scale or position moves logits by more than 1e-2.
F32_BOUND = 1e-3
# Another place to round, but no worse: the reference's own error in bf16, times this.
BF16_FACTOR = 1.5
_BF16_LEAST = 0.01
# Two tokens whose logits are closer may change places in bf16, in units of the bound.
_NEAR = 4.0


@dataclass(frozen=True, slots=True)
class Reference:
    """`generated` are the greedy tokens after each of `prompts`; `logprobs` of all tokens from the
    second on; `margins` by which a generated token's logit exceeds all others. `bf16_error` is that
    of a trusted implementation in bf16, relative to these, as `Difference.error`. `program` is
    what computed it."""

    program: str
    prompts: list[list[int]]
    generated: list[list[int]]
    logprobs: list[list[float]]
    margins: list[list[float]]
    bf16_error: float = math.nan

    def save(self, folder: Path) -> None:
        """Write it beside the checkpoint in `folder`."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Reference:
        """That of the checkpoint in `folder`."""
        return cls(**json.loads((folder / _FILE).read_text()))

    @property
    def num_tokens(self) -> int:
        """Generated of each prompt."""
        return len(self.generated[0])

    def bound(self, dtype: str) -> float:
        """The largest error that passes. In f32 it is the largest difference of one token, in bf16
        the root mean square of all."""
        return F32_BOUND if dtype == "f32" else max(_BF16_LEAST, BF16_FACTOR * self.bf16_error)


@dataclass(frozen=True, slots=True)
class Difference:
    """`error` of log probabilities, `compared` of them; `wrong_tokens` that are not nearly as
    likely as the reference's."""

    error: float
    compared: int
    equal_tokens: int
    wrong_tokens: int
    bound: float

    @property
    def passed(self) -> bool:
        """Whether this is close enough. NaN is not."""
        return self.error <= self.bound and self.wrong_tokens == 0

    def record(self) -> dict[str, Any]:
        """The fields of a result."""
        return {"what": "parity", **asdict(self), "passed": self.passed}


def compare(started: Started, reference: Reference, dtype: str) -> Difference:
    """The engine's answers, whose logits are computed in `dtype`, against the reference's."""
    answers = started.run(reference.prompts, max(1, reference.num_tokens), logprobs=True)
    return difference(answers, reference, dtype)


def difference(answers: Sequence[Answer], reference: Reference, dtype: str) -> Difference:
    """Of log probabilities, as far as tokens are equal: after another token all differs."""
    bound = reference.bound(dtype)
    errors: list[float] = []
    equal = wrong = 0
    for answer, prompt, expected, logprobs, margins in zip(
        answers,
        reference.prompts,
        reference.generated,
        reference.logprobs,
        reference.margins,
        strict=True,
    ):
        same = next(
            (i for i, (a, b) in enumerate(zip(answer.tokens, expected, strict=False)) if a != b),
            len(expected),
        )
        equal += same
        wrong += same < len(expected) and margins[same] > _NEAR * bound
        known = len(prompt) - 1 + same
        pairs = zip(answer.logprobs[:known], logprobs[:known], strict=True)
        errors += [a - b for a, b in pairs]
    squares = sum(error * error for error in errors) / len(errors)
    largest = max(abs(error) if error == error else math.inf for error in errors)
    error = largest if dtype == "f32" else math.sqrt(squares)
    return Difference(error, len(errors), equal, wrong, bound)
