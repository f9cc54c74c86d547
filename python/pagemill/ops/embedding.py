"""`embedding`: rows of a table, dequantized and scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype, require_rank, require_weight
from pagemill.ops.program import ACT
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def embedding(ids: Tensor, weight: Tensor, *, scale: float = 1.0) -> Tensor:
    """ids i32 [N], weight [V, H] -> [N, H]: `weight[ids] * scale`.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_dtype("embedding", "ids", ids, ("i32",))
    require_rank("embedding", "ids", ids, 1)
    require_weight("embedding", "weight", weight, 2)
    attributes = [("scale", scale)] if scale != 1.0 else []
    result = ((ids.rows, weight.shape[1]), ACT)
    return ids.trace.emit("embedding", [ids, weight], [result], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    ids, weight = inputs
    rows = weight[ids]
    scale = attributes.get("scale", 1.0)
    return (rows if scale == 1.0 else rows * scale,)
