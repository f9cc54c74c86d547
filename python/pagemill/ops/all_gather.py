"""`all_gather`: concatenates the columns of all ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype
from pagemill.ops.shard import Shard
from pagemill.ops.trace import ShapeError, Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def all_gather(x: Tensor, width: int, *, shard: Shard) -> Tensor:
    """x [N, shard.part(width).size] of each rank -> [N, width] on every rank.

    Raises:
        ShapeError: the operand does not fit.
    """
    require_dtype("all_gather", "x", x, ("act", "f32"))
    if x.width != shard.part(width).size:
        raise ShapeError(
            f"all_gather: rank {shard.rank} of {shard.ranks} has {shard.part(width).size} of"
            f" {width} columns, {x.name} has {x.width}"
        )
    attributes = [
        ("axis", float(shard.axis)),
        ("ranks", float(shard.ranks)),
        ("rank", float(shard.rank)),
    ]
    return x.trace.emit("all_gather", [x], [((x.rows, width), x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in a group of one.

    Raises:
        ValueError: the program is for a larger group.
    """
    del step
    if attributes["ranks"] != 1:
        raise ValueError("the torch executor runs programs of one rank; use --executor native")
    return (inputs[0],)
