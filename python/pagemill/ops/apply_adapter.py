"""`apply_adapter`: what a low-rank adapter (LoRA) adds to the result of a linear layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagemill.ops.checks import require_act, require_act_or_f32, require_dtype, require_rank
from pagemill.ops.trace import AdapterTable, ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def apply_adapter(
    y: Tensor,
    x: Tensor,
    slots: Tensor,
    table: AdapterTable,
    *,
    rows: Tensor | None = None,
    experts: Tensor | None = None,
) -> Tensor:
    """y [N, ...] of M elements, x [N, ...] of K, or i32 [N]: ids of unit vectors; `table` of a
    layer M x K -> y with what the adapter in slot slots[n] makes of x[n]; slots[n] < 0: y[n].

    slots i32 [T]; with rows i32 [N] row n has slots[rows[n]]. With experts i32 [N, J] and a `table`
    of E x M x K, y is [N, J, M] and x [N, K] or [N, J, K].

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act_or_f32("apply_adapter", y=y)
    if x.dtype != "i32":
        require_act("apply_adapter", x=x)
    require_dtype("apply_adapter", "slots", slots, ("i32",))
    require_rank("apply_adapter", "slots", slots, 1)
    *counts, out, features = table.shape
    choices = 1 if experts is None else experts.width
    if (
        len(counts) != (experts is not None)
        or y.width != choices * out
        or (x.dtype != "i32" and x.width not in (features, choices * features))
        or not y.rows == x.rows == (slots if rows is None else rows).rows
    ):
        raise ShapeError(
            f"apply_adapter: {table.name} is for a layer of {list(table.shape)}, got rows of"
            f" {y.width} and {x.width}"
        )
    operands = [x, slots, rows, experts, y, table]
    return y.trace.emit("apply_adapter", operands, [(y.shape, y.dtype)])[0]


@dataclass(frozen=True, slots=True)
class TorchAdapter:
    """One adapter for a layer: a [rank, K], b [M, rank]; gain and offset [M] of the layer's
    result."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float = 1.0
    gain: torch.Tensor | None = None
    offset: torch.Tensor | None = None


def reference(
    inputs: Sequence[Any], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; a table maps slot and expert, 0 without experts, to a `TorchAdapter`."""
    import torch

    del attributes, step
    x, slots, rows, experts = inputs[:4]
    of_row = slots if rows is None else slots[rows]
    ids = torch.zeros_like(of_row)[:, None] if experts is None else experts
    results: list[torch.Tensor] = []
    for y, table in zip(inputs[4::2], inputs[5::2], strict=True):
        result = y.reshape(*ids.shape, -1)
        for (slot, expert), adapter in table.items():
            if x.is_floating_point():
                low = x.reshape(x.shape[0], -1, adapter.a.shape[1]) @ adapter.a.T
            else:
                low = adapter.a.T[x][:, None]
            changed = result if adapter.gain is None else result * adapter.gain
            if adapter.offset is not None:
                changed = changed + adapter.offset
            changed = changed + adapter.scale * (low @ adapter.b.T)
            chosen = (of_row == slot)[:, None] & (ids == expert)
            result = torch.where(chosen[..., None], changed, result)
        results.append(result.reshape(y.shape))
    return tuple(results)
