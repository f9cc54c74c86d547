"""`select_rows`: the rows of the step's tokens that logits are wanted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x [T, H], rows i32 [L] -> x[rows], [L, H].

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("select_rows", x=x)
    require_rank("select_rows", "x", x, 2)
    require_rank("select_rows", "rows", rows, 1)
    require_dtype("select_rows", "rows", rows, ("i32",))
    return x.trace.emit("select_rows", [x, rows], [((rows.rows, *x.shape[1:]), x.dtype)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch."""
    del attributes, step
    x, rows = inputs
    return (x[rows],)
