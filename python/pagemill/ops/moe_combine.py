"""`moe_combine`: the weighted sum of the outputs of a token's experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.program import ACT
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def moe_combine(x: Tensor, weights: Tensor) -> Tensor:
    """x [N, J, H], or [N, H] that all choices share, weights f32 [N, J] -> sum over j of
    weights[n, j] x[n, j], [N, H].

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("moe_combine", x=x)
    require_dtype("moe_combine", "weights", weights, ("f32",))
    require_rank("moe_combine", "weights", weights, 2)
    if len(x.shape) not in (2, 3) or x.shape[:-1] != weights.shape[: len(x.shape) - 1]:
        raise ShapeError(
            f"moe_combine: {x.name} is {format_shape(x.shape)}, its weights"
            f" {format_shape(weights.shape)}"
        )
    return x.trace.emit("moe_combine", [x, weights], [((x.rows, x.shape[-1]), ACT)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, added up in f32."""
    import torch

    del attributes, step
    x, weights = inputs
    terms = "njh,nj->nh" if x.ndim == 3 else "nh,nj->nh"
    return (torch.einsum(terms, x.float(), weights.float()).to(x.dtype),)
