"""`layer_norm`: mean and variance normalization over the last dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pagemill.ops.checks import last_dim, require_act, require_f32, require_vector
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float, weight_offset: float = 0.0
) -> Tensor:
    """x [N, ..., H], weight and bias [H], or [G * H] for x [N, G, H] -> (x - mean) / sqrt(variance
    + eps) * (weight + weight_offset) + bias, mean and variance over the last dimension.

    Raises:
        ShapeError: the operands do not fit.
    """
    require_act("layer_norm", x=x)
    require_f32("layer_norm", weight=weight, bias=bias)
    size = last_dim("layer_norm", "x", x)
    if len(x.shape) == 3 and weight.shape == (x.width,):
        size = x.width
    require_vector("layer_norm", "weight", weight, size)
    require_vector("layer_norm", "bias", bias, size)
    attributes = [("eps", eps)]
    if weight_offset != 0.0:
        attributes.append(("weight_offset", weight_offset))
    return x.trace.emit("layer_norm", [x, weight, bias], [(x.shape, x.dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch; computed in f32 for every type of `x`."""
    del step
    x, weight, bias = inputs
    if len(weight) != x.shape[-1]:
        weight, bias = weight.reshape(x.shape[1:]), bias.reshape(x.shape[1:])
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + attributes["eps"]).rsqrt()
    factor = weight.float() + attributes.get("weight_offset", 0.0)
    return ((centred * scale * factor + bias.float()).to(x.dtype),)
