"""`head_linear`: each head times its own matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_rank, require_weight
from pagemill.ops.program import ACT
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def head_linear(x: Tensor, weight: Tensor, *, transposed: bool = False, dtype: str = ACT) -> Tensor:
    """x [N, J, K], weight [J, M, K] -> x[n, j] weight[j]^T, [N, J, M]; with `transposed` the weight
    is [J, K, M] and the result x[n, j] weight[j]. `dtype` is the result's, "act" or "f32".

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("head_linear", x=x)
    require_rank("head_linear", "x", x, 3)
    require_weight("head_linear", "weight", weight, 3, scaled=True)
    heads, rows, columns = weight.shape
    features, out = (rows, columns) if transposed else (columns, rows)
    if x.shape[1:] != (heads, features):
        raise ShapeError(
            f"head_linear: x is {format_shape(x.shape)}, weight {weight.name} is"
            f" {format_shape(weight.shape)}{', transposed' if transposed else ''}"
        )
    attributes = [("transposed", 1)] if transposed else []
    results = [((x.rows, heads, out), dtype)]
    return x.trace.emit("head_linear", [x, weight], results, attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, the product in the type of `x`."""
    import torch

    del step
    x, weight = inputs
    by_head = weight if attributes.get("transposed", 0) else weight.mT
    return (torch.einsum("njk,jkm->njm", x, by_head),)
