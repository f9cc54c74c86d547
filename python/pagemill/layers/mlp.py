"""Feed-forward layers."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_KINDS = {
    "gelu": ops.ActivationKind.GELU,
    "gelu_new": ops.ActivationKind.GELU_TANH,
    "gelu_pytorch_tanh": ops.ActivationKind.GELU_TANH,
    "quick_gelu": ops.ActivationKind.QUICK_GELU,
    "relu": ops.ActivationKind.RELU,
    "silu": ops.ActivationKind.SILU,
    "swish": ops.ActivationKind.SILU,
    "tanh": ops.ActivationKind.TANH,
}


def activation_kind(name: str) -> ops.ActivationKind:
    """The activation that a configuration calls `name`.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in _KINDS:
        raise ValueError(f"unknown activation {name!r:.40}; known: {', '.join(_KINDS)}")
    return _KINDS[name]


def gated_mlp(
    weights: Weights,
    prefix: str,
    x: Tensor,
    intermediate: int,
    kind: ops.ActivationKind,
    *,
    bias: bool = False,
) -> Tensor:
    """x [N, H] -> down(act(gate(x)) * up(x)), [N, H]. Ranks divide the intermediate dimension."""
    block = weights.block_elements(f"{prefix}.down_proj.weight")
    part = weights.shard.part(intermediate, block)
    gate = linear(weights, f"{prefix}.gate_proj", x, (part.size,), bias=bias, rows=part)
    up = linear(weights, f"{prefix}.up_proj", x, (part.size,), bias=bias, rows=part)
    inner = ops.gated_activation(gate, up, kind)
    return row_parallel(weights, f"{prefix}.down_proj", inner, x.width, columns=part, bias=bias)


def packed_gated_mlp(
    weights: Weights, prefix: str, x: Tensor, intermediate: int, kind: ops.ActivationKind
) -> Tensor:
    """As `gated_mlp`, with the rows of gate and then of up in `<prefix>.input_linear`, and down in
    `<prefix>.output_linear`."""
    block = weights.block_elements(f"{prefix}.output_linear.weight")
    part = weights.shard.part(intermediate, block)
    gate, up = (
        linear(
            weights,
            f"{prefix}.input_linear",
            x,
            (part.size,),
            rows=Part(first + part.begin, first + part.end, 2 * intermediate),
        )
        for first in (0, intermediate)
    )
    inner = ops.gated_activation(gate, up, kind)
    return row_parallel(weights, f"{prefix}.output_linear", inner, x.width, columns=part)
