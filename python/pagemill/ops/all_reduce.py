"""`all_reduce`: the sum over all ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_dtype
from pagemill.ops.shard import Shard
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def all_reduce(x: Tensor, *, shard: Shard) -> Tensor:
    """x [N, H] of each rank of the shard's group -> their sum, added in rank order, on every rank.

    Raises:
        ShapeError: the operand does not fit.
    """
    require_dtype("all_reduce", "x", x, ("act", "f32"))
    attributes = [("axis", float(shard.axis)), ("ranks", float(shard.ranks))]
    return x.trace.emit("all_reduce", [x], [(x.shape, x.dtype)], attributes)[0]


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
