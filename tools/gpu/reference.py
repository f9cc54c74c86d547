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
# Another place to round, but no worse: a trusted implementation's error in bf16, times this.
BF16_FACTOR = 2.0
# The share of errors in bf16, the largest ones, that does not count where experts are chosen: a
# choice that changes moves a token by more than all rounding. Those in f32 all count.
_LEFT_OUT = 0.05
_BF16_LEAST = 0.01
# Two tokens whose logits are closer may change places, in units of the bound.
_NEAR = 4.0


@dataclass(frozen=True, slots=True)
class Reference:
    """`generated` are the greedy tokens after each of `prompts`; `logprobs` of all tokens from the
    second on; `margins` by which a generated token's logit exceeds all others. `bf16_error` and
    `bf16_lost` are those of a trusted implementation in bf16, relative to these, as `error` and
    `lost` of `Difference`. `program` is what computed it. A step of the engine has at most
    `step_tokens` tokens of prompts; 0: it does not matter. `has_experts`: tokens choose some."""

    program: str
    prompts: list[list[int]]
    generated: list[list[int]]
    logprobs: list[list[float]]
    margins: list[list[float]]
    bf16_error: float = math.nan
    bf16_lost: float = 0.0
    step_tokens: int = 0
    has_experts: bool = False

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
        the root mean square, with experts of all but the largest."""
        return F32_BOUND if dtype == "f32" else max(_BF16_LEAST, BF16_FACTOR * self.bf16_error)

    def near(self, dtype: str) -> float:
        """The largest margin by which a token may be lost to another."""
        near = _NEAR * self.bound(dtype)
        return near if dtype == "f32" else max(near, BF16_FACTOR * self.bf16_lost)


@dataclass(frozen=True, slots=True)
class Difference:
    """`error` of log probabilities, `compared` of them; `lost` is the largest margin of a token of
    the reference instead of which there is another, at most `near` of two nearly equal ones."""

    error: float
    compared: int
    equal_tokens: int
    lost: float
    bound: float
    near: float

    @property
    def passed(self) -> bool:
        """Whether this is close enough. NaN is not."""
        return self.error <= self.bound and self.lost <= self.near

    def record(self, of: str = "") -> dict[str, Any]:
        """The fields of a result; `of`: where there are several."""
        return {"what": "parity", "of": of, **asdict(self), "passed": self.passed}


def compare(started: Started, reference: Reference, dtype: str) -> Difference:
    """The engine's answers, whose logits are computed in `dtype`, against the reference's."""
    answers = started.run(reference.prompts, max(1, reference.num_tokens), logprobs=True)
    return difference(answers, reference, dtype)


def difference(answers: Sequence[Answer], reference: Reference, dtype: str) -> Difference:
    """Of log probabilities, as far as tokens are equal: after another token all differs."""
    errors: list[float] = []
    equal, lost = 0, 0.0
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
        lost = max(lost, *margins[same : same + 1], 0.0)
        known = len(prompt) - 1 + same
        pairs = zip(answer.logprobs[:known], logprobs[:known], strict=True)
        errors += [a - b for a, b in pairs]
    error = _size(errors, dtype, reference.has_experts)
    bound, near = reference.bound(dtype), reference.near(dtype)
    return Difference(error, len(errors), equal, lost, bound, near)


def _size(errors: Sequence[float], dtype: str, has_experts: bool) -> float:
    """What `Reference.bound` bounds. Infinite if an error is NaN."""
    sizes = sorted(abs(error) if error == error else math.inf for error in errors)
    if dtype == "f32" or sizes[-1] == math.inf:
        return sizes[-1]
    left_out = _LEFT_OUT if has_experts else 0
    counted = sizes[: math.ceil(len(sizes) * (1 - left_out))]
    return math.sqrt(sum(size * size for size in counted) / len(counted))
