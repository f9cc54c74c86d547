"""`select_rows`: some rows of a value, such as those that need logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def select_rows(x: Tensor, rows: Tensor, *, count: int = 1) -> Tensor:
    """x [T, ...], rows i32 [L] -> [L, count * H]: x[rows[l]] and the rows after it, of H elements
    each, side by side.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("select_rows", x=x)
    require_rank("select_rows", "rows", rows, 1)
    require_dtype("select_rows", "rows", rows, ("i32",))
    shape = (rows.rows, count * x.width)
    attributes = [("count", float(count))] if count != 1 else []
    return x.trace.emit("select_rows", [x, rows], [(shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del step
    x, rows = inputs[0].flatten(1), inputs[1]
    count = int(attributes.get("count", 1))
    padded = x.new_zeros(len(x) + count - 1, x.shape[1])
    padded[: len(x)] = x
    side_by_side = rows[:, None] + rows.new_tensor(range(count))
    return (padded[side_by_side].reshape(len(rows), count * x.shape[1]),)
