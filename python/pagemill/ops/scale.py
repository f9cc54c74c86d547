"""`scale`: multiplies by a number, by one that grows with the position, or each column or group by
one of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act_or_f32, require_dtype, require_f32, require_vector
from pagemill.ops.trace import ShapeError, Tensor, format_shape

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def scale(x: Tensor, by: float) -> Tensor:
    """x [N, ...] -> x * by, an activation or f32 as logits are; x itself if `by` is 1.

    Raises:
        ShapeError: `x` is neither.
    """
    require_act_or_f32("scale", x=x)
    if by == 1:
        return x
    return x.trace.emit("scale", [x], [(x.shape, x.dtype)], [("by", by)])[0]


def scale_columns(x: Tensor, factors: Tensor) -> Tensor:
    """x [N, H], factors f32 [H] -> each column of x times its factor.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act_or_f32("scale", x=x)
    require_f32("scale", factors=factors)
    require_vector("scale", "factors", factors, x.width)
    return x.trace.emit("scale", [x, factors], [(x.shape, x.dtype)], [("by", 1)])[0]


def scale_groups(x: Tensor, factors: Tensor) -> Tensor:
    """x [N, G, ...], factors f32 [N, G] -> each group of a row, such as a head of an attention's
    result, times its factor.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act_or_f32("scale", x=x)
    require_dtype("scale", "factors", factors, ("f32",))
    if len(x.shape) < 3 or factors.shape != x.shape[:2]:
        raise ShapeError(
            f"scale: factors are {format_shape(factors.shape)}, x is {format_shape(x.shape)};"
            " they must have one for each group of a row"
        )
    return x.trace.emit("scale", [x, factors], [(x.shape, x.dtype)], [("by", 1)])[0]


def scale_by_position(
    x: Tensor, positions: Tensor, *, growth: float, context: int, offset: int = 0
) -> Tensor:
    """x [T, ...], positions i32 [T] -> x times 1 + growth * ln(1 + floor((position +
    offset) / context)).

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act_or_f32("scale", x=x)
    require_dtype("scale", "positions", positions, ("i32",))
    if positions.shape != (x.rows,):
        raise ShapeError(f"scale: positions are {format_shape(positions.shape)}, x {x.rows} rows")
    attributes = [("by", 1), ("growth", growth), ("context", context)]
    if offset:
        attributes.append(("offset", offset))
    return x.trace.emit("scale", [x, positions], [(x.shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    import torch

    del step
    x, by = inputs[0], attributes["by"]
    if len(inputs) == 1:
        return (x * by,)
    if inputs[1].dtype == torch.float32:
        groups = inputs[1].ndim == 2
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2)) if groups else x.shape[1:]
        return ((x.float() * by * inputs[1].reshape(shape)).to(x.dtype),)
    positions = inputs[1] + int(attributes.get("offset", 0))
    contexts = torch.div(positions, int(attributes["context"]), rounding_mode="floor")
    factors = by * (1 + attributes["growth"] * torch.log1p(contexts.double()))
    return ((x.float() * factors.float().reshape(-1, *(1,) * (x.ndim - 1))).to(x.dtype),)
