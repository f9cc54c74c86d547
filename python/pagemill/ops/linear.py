"""`linear`: rows times the transpose of a weight matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_f32, require_vector, require_weight
from pagemill.ops.program import ACT, Shape
from pagemill.ops.trace import ShapeError, Tensor, row_width

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    row_shape: Sequence[int] | None = None,
    dtype: str = ACT,
) -> Tensor:
    """x [N, K], weight [M, K], bias [M] -> x weight^T + bias, [N, M]. The weight may be quantized.
    Rows of x may be of any shape; x [N, J, K] has J rows each: [N, J, M], and x [N, J, H, K] has
    J H rows, or J of H K elements.

    `row_shape`, e.g. (heads, head_dim), gives the rows of the result another shape of M elements,
    or of J M; `dtype` is the result's, "act" or "f32".

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("linear", x=x)
    require_f32("linear", bias=bias)
    require_weight("linear", "weight", weight, 2, scaled=True)
    features = weight.width
    inner = _inner(x, features)
    if inner is None:
        raise ShapeError(
            f"linear: {x.name} has rows of {x.width}, weight {weight.name} takes {features}"
        )
    out = int(weight.rows)
    require_vector("linear", "bias", bias, out)
    result: Shape = (x.rows, *inner, out)
    shape: Shape = result if row_shape is None else (x.rows, *row_shape)
    if row_width(shape) != row_width(result):
        raise ShapeError(
            f"linear: rows of {row_width(result)} of {weight.name} do not fit {tuple(shape[1:])}"
        )
    operands = [x, weight] if bias is None else [x, weight, bias]
    return x.trace.emit("linear", operands, [(shape, dtype)])[0]


def _inner(x: Tensor, features: int) -> Shape | None:
    """The dimensions of x between the first and the last ones, as few as have the product
    `features`; None if there are no such ones."""
    for end in reversed(range(1, len(x.shape))):
        if row_width((1, *x.shape[end:])) == features:
            return x.shape[1:end]
    return None


def reference(
    inputs: Sequence[torch.Tensor | None], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, weights and product in the type of `x` (torch accumulates in f32).

    A rewrite creates ops with several products of one `x`: each weight is followed by its bias or
    None.
    """
    from torch.nn.functional import linear as torch_linear

    del attributes, step
    x = inputs[0]
    assert x is not None
    results: list[torch.Tensor] = []
    for i in range(1, len(inputs), 2):
        weight = inputs[i]
        assert weight is not None
        bias = inputs[i + 1] if i + 1 < len(inputs) else None
        out, features = weight.shape
        inner = x.flatten(1).shape[1] // features
        rows = x.reshape(len(x) * inner, features)
        y = torch_linear(rows, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        results.append(y.reshape(len(x), inner * out))
    return tuple(results)
