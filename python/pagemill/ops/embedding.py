"""`embedding`: rows of a table, dequantized and scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype, require_rank, require_weight
from pagemill.ops.program import ACT
from pagemill.ops.trace import ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def embedding(
    ids: Tensor, weight: Tensor, *, scale: float = 1.0, outside: int | None = None
) -> Tensor:
    """ids i32 [N], weight [V, H] -> [N, H]: `weight[ids] * scale`. If `outside` is given, ids
    outside [0, V) read that row; without it the table must have a row for each token of the
    vocabulary.

    Raises:
        ShapeError: the operands do not fit, or there is no row `outside`.
    """
    require_dtype("embedding", "ids", ids, ("i32",))
    require_rank("embedding", "ids", ids, 1)
    require_weight("embedding", "weight", weight, 2)
    attributes = [("scale", scale)] if scale != 1.0 else []
    if outside is not None:
        if not 0 <= outside < int(weight.rows):
            raise ShapeError(f"embedding: {weight.name} has no row {outside}")
        attributes.append(("outside", outside))
    result = ((ids.rows, weight.shape[1]), ACT)
    return ids.trace.emit("embedding", [ids, weight], [result], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    ids, weight = inputs
    if "outside" in attributes:
        known = (ids >= 0) & (ids < weight.shape[0])
        ids = ids.where(known, int(attributes["outside"]))
    rows = weight[ids]
    scale = attributes.get("scale", 1.0)
    return (rows if scale == 1.0 else rows * scale,)
