"""`grouped_linear`: rows times the matrices of their chosen experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank, require_weight
from pagemill.ops.program import ACT, Shape
from pagemill.ops.trace import Operand, ShapeError, Tensor, describe, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def grouped_linear(
    x: Tensor, ids: Tensor, *stacks: Tensor, biases: Sequence[Tensor | None] | None = None
) -> tuple[Tensor, ...]:
    """x [N, K] or [N, J, K], ids i32 [N, J], stacks [E, M, K] -> for each stack
    x[n, j] W[ids[n, j]]^T + bias[ids[n, j]], [N, J, M].

    Each bias is [E, M] or None. Stacks of one call have one format, and read x once.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("grouped_linear", x=x)
    require_dtype("grouped_linear", "ids", ids, ("i32",))
    require_rank("grouped_linear", "ids", ids, 2)
    operands: list[Operand] = [x, ids]
    results: list[tuple[Shape, str]] = []
    for stack, bias in zip(stacks, biases or [None] * len(stacks), strict=True):
        require_weight("grouped_linear", "the stack", stack, 3, scaled=True)
        experts, out, features = stack.shape
        first = stacks[0]
        alike = stack.format is first.format is None or (
            stack.format is not None
            and first.format is not None
            and stack.format.like(first.format)
        )
        if stack.dtype != first.dtype or not alike or experts != first.rows:
            raise ShapeError(f"grouped_linear: {describe(first)}, {describe(stack)}")
        if x.width not in (features, ids.width * int(features)):
            raise ShapeError(
                f"grouped_linear: {x.name} has rows of {x.width}, {stack.name} takes {features},"
                f" or {ids.width} times that"
            )
        if bias is not None and (bias.shape != (experts, out) or bias.dtype != "f32"):
            raise ShapeError(
                f"grouped_linear: the bias of {stack.name} must be f32 [{experts}, {out}],"
                f" got {bias.dtype} {format_shape(bias.shape)}"
            )
        operands += [stack, bias]
        results.append(((x.rows, ids.width, out), ACT))
    return x.trace.emit("grouped_linear", operands, results)


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, one expert at a time on all rows: only the device knows the number of rows
    of an expert, and a reference does not wait for it."""
    import torch
    from torch.nn.functional import linear

    del attributes, step
    x, ids = inputs[0], inputs[1]
    assert x is not None and ids is not None
    results: list[torch.Tensor] = []
    for i in range(2, len(inputs), 2):
        stack, bias = inputs[i], inputs[i + 1]
        assert stack is not None
        width = stack.shape[2]
        rows = x.reshape(x.shape[0], x.shape[1:].numel() // width, width)  # [N, 1 or J, K]
        y = x.new_zeros((*ids.shape, stack.shape[1]))
        for expert in range(stack.shape[0]):
            of_expert = None if bias is None else bias[expert].to(x.dtype)
            product = linear(rows, stack[expert], of_expert)
            y = torch.where((ids == expert)[..., None], product, y)
        results.append(y)
    return tuple(results)
