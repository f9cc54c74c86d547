"""`layer_norm`: mean and variance normalization over the last dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act, require_f32, require_vector
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """x [N, H], weight [H], bias [H] -> (x - mean) / sqrt(variance + eps) * weight + bias.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("layer_norm", x=x)
    require_f32("layer_norm", weight=weight, bias=bias)
    hidden = last_dim("layer_norm", "x", x)
    require_vector("layer_norm", "weight", weight, hidden)
    require_vector("layer_norm", "bias", bias, hidden)
    return x.trace.emit("layer_norm", [x, weight, bias], [(x.shape, x.dtype)], [("eps", eps)])[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `x`."""
    del step
    x, weight, bias = inputs
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + attributes["eps"]).rsqrt()
    return ((centred * scale * weight.float() + bias.float()).to(x.dtype),)
