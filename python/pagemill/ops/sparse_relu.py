"""`sparse_relu`: what the largest elements of a row have above a cutoff that the row sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_rank
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def sparse_relu(x: Tensor, *, deviations: float) -> Tensor:
    """x [N, H] -> max(0, x - (mean + deviations * standard deviation)) of each row, [N, H].

    Raises:
        ShapeError: `x` is no activation, or not of rank 2.
    """
    require_act("sparse_relu", x=x)
    require_rank("sparse_relu", "x", x, 2)
    attributes = [("deviations", deviations)]
    return x.trace.emit("sparse_relu", [x], [(x.shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `x`."""
    import torch

    del step
    x = inputs[0].float()
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    cutoff = mean + attributes["deviations"] * variance.sqrt()
    return ((x - cutoff).relu().to(inputs[0].dtype),)
