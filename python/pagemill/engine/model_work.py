"""What one step of a model has to read and to multiply, whatever the kernels: for limits.

Counted are the weights of matrix multiplications; of experts, those that the step's tokens take if
they choose at random, and of these the ones that the first rank has.
Attention, norms and activations are left out, so a limit that follows from this is never too low.
Only rows whose logits are requested go through the vocabulary projection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagemill.config import EngineConfig

# Rows of a step when kernels are asked for: recognized in the operands, so no model's own numbers.
_TOKENS = 1021
_LOGITS_ROWS = 509
_OPERAND = re.compile(r"(\w+)\[((?:\d+,)+\d+)\]")


@dataclass(frozen=True, slots=True)
class Multiplication:
    """All multiplications of one shape by one kernel."""

    kernel: str
    weight_bytes: int  # that one row takes
    operations_per_row: int  # a multiplication and an addition are two
    per_token: bool  # for each token of the step; otherwise for each row of logits
    share: float = 1.0  # of a stack's matrices, that one row takes

    def bytes_of(self, rows: float) -> float:
        """Read for so many rows, each of which takes its share of a stack at random."""
        return self.weight_bytes * (1 - (1 - self.share) ** max(rows, 1)) / self.share


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What has to be done in each step."""

    multiplications: tuple[Multiplication, ...]

    @property
    def weight_bytes(self) -> int:
        """Read for one token."""
        return sum(each.weight_bytes for each in self.multiplications)

    def bytes_of_step(self, tokens: float) -> float:
        """Read, once, in a step of so many tokens."""
        return sum(each.bytes_of(tokens) for each in self.multiplications)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Those that multiply, by the operations they do for a token, most first."""
        totals: dict[str, int] = {}
        for each in self.multiplications:
            totals[each.kernel] = totals.get(each.kernel, 0) + each.operations_per_row
        return tuple(sorted(totals, key=lambda kernel: (-totals[kernel], kernel)))

    def operations(self, tokens: float, logits_rows: float) -> dict[str, float]:
        """Returns kernel -> operations of a step of so many tokens and rows of logits."""
        totals = dict.fromkeys(self.kernels, 0.0)
        for each in self.multiplications:
            rows = tokens if each.per_token else logits_rows
            totals[each.kernel] += rows * each.operations_per_row
        return totals

    @classmethod
    def of_choices(cls, choices: Iterable[tuple[str, str, str, int]]) -> ModelWork:
        """Reads the work from `_native.kernel_choices`, asked with `_TOKENS` and `_LOGITS_ROWS`."""
        found: list[Multiplication] = []
        routed = 0  # experts of a layer, of which the program may have a part
        for op, operands, kernel, count in choices:
            if op == "embedding":  # gathers rows
                continue
            inputs = operands.partition("->")[0].split()
            if op == "moe_route" and (logits := _OPERAND.fullmatch(inputs[0])):
                routed = max(routed, int(logits.group(2).split(",")[-1]))
            found += _multiplications(inputs, kernel, count, routed)
        return cls(tuple(found))


def model_work(config: EngineConfig) -> ModelWork | None:
    """Returns the work of the configured model; None if no kernels of ours do it. Reads headers,
    no weights.

    Raises:
      FetchError, WeightsError, ModelConfigError, StatusError: as `plan_model`.
    """
    import dataclasses

    from pagemill import _native
    from pagemill.engine.model_plan import built_model

    scheduler = dataclasses.replace(
        config.scheduler,
        max_num_batched_tokens=_TOKENS,
        max_num_logits_rows=_LOGITS_ROWS,
        max_num_seqs=min(config.scheduler.max_num_seqs, _LOGITS_ROWS),
    )
    model = built_model(dataclasses.replace(config, scheduler=scheduler))
    if model.built.module is not None:
        return None
    # A model whose prompts run whole has larger steps; the rows are then recognized as those.
    return ModelWork.of_choices(_native.kernel_choices(model.built.program_text, model.options))


def _multiplications(
    inputs: Sequence[str], kernel: str, count: int, routed: int
) -> list[Multiplication]:
    """One for each operand that is a matrix of weights, or a stack of some of the `routed` experts:
    with no dimension that is the step's."""
    from pagemill.tensor.dtypes import DTYPES

    if not inputs or not (rows := re.match(r"\w+\[(\d+)", inputs[0])):
        return []
    step_rows, choices = int(rows.group(1)), 0  # choices: of a stack, for a row
    found: list[Multiplication] = []
    for operand in inputs[1:]:
        match = _OPERAND.fullmatch(operand)
        if match is None:
            continue
        dtype, dims = match.group(1), [int(dim) for dim in match.group(2).split(",")]
        if dims[0] == step_rows:
            # The experts of a row: stacks follow.
            choices = dims[1] if dtype == "i32" else choices
            continue
        *stack, outputs, depth = dims
        # The cache of attention is a matrix of blocks: one here, and none is a weight.
        if dtype not in DTYPES or outputs == 1 or bool(stack) != bool(choices):
            continue
        times, share = float(count), 1.0
        if choices:
            share = choices / max(routed, stack[0])
            times *= share * stack[0]
        info = DTYPES[dtype]
        row_bytes = math.ceil(depth / info.block_elements) * info.block_bytes
        found.append(
            Multiplication(
                kernel=kernel,
                weight_bytes=round(times * outputs * row_bytes),
                operations_per_row=round(2 * times * outputs * depth),
                per_token=step_rows != _LOGITS_ROWS,
                share=share,
            )
        )
    return found
