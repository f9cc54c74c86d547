"""`argmax`: the largest element of each row and its column.

Device executors also run it after a program, behind its logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype, require_rank
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def argmax(x: Tensor) -> tuple[Tensor, Tensor]:
    """x f32 [N, V] -> columns i32 [N], the lowest one with the largest element of each row, or -1
    if there is none, and that element, f32 [N].

    Raises:
        ShapeError: `x` is of another shape or type.
    """
    require_dtype("argmax", "x", x, ("f32",))
    require_rank("argmax", "x", x, 2)
    columns, values = x.trace.emit("argmax", [x], [((x.rows,), "i32"), ((x.rows,), "f32")])
    return columns, values


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    import torch

    del attributes, step
    (x,) = inputs
    values = x.amax(-1)
    # The lowest column with the maximum.
    columns = (x == values[:, None]).to(torch.int32).argmax(-1).to(torch.int32)
    values = torch.where(values.isnan(), torch.inf, values)
    return torch.where(values.isfinite(), columns, -1), values
