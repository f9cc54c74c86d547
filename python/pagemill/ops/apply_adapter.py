"""`apply_adapter`: what a low-rank adapter (LoRA) adds to the result of a linear layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagemill.ops.checks import require_act, require_dtype, require_rank
from pagemill.ops.trace import AdapterTable, ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def apply_adapter(y: Tensor, x: Tensor, slots: Tensor, table: AdapterTable) -> Tensor:
    """y [N, ...] of M elements, x [N, ...] of K, slots i32 [N], `table` of a layer M x K -> y with
    what the adapter in slot slots[n] makes of x[n]; slots[n] < 0: y[n].

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("apply_adapter", y=y, x=x)
    require_dtype("apply_adapter", "slots", slots, ("i32",))
    require_rank("apply_adapter", "slots", slots, 1)
    if table.shape != (y.width, x.width) or not y.rows == x.rows == slots.rows:
        raise ShapeError(
            f"apply_adapter: {table.name} is for a layer of {list(table.shape)}, got rows of"
            f" {y.width} and {x.width}"
        )
    return y.trace.emit("apply_adapter", [y, x, slots, table], [(y.shape, y.dtype)])[0]


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
    """The op in torch; the table maps slots to a `TorchAdapter`."""
    import torch

    del attributes, step
    y, x, slots, table = inputs
    rows, result = x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1)
    for slot, adapter in table.items():
        changed = result if adapter.gain is None else result * adapter.gain
        if adapter.offset is not None:
            changed = changed + adapter.offset
        changed = changed + adapter.scale * ((rows @ adapter.a.T) @ adapter.b.T)
        result = torch.where((slots == slot)[:, None], changed, result)
    return (result.reshape(y.shape),)
