"""The recurrent block of Griffin and RecurrentGemma: a short convolution and a gated linear
recurrence in one branch, an activation in the other.

Every rank computes whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.state_space import state_cache
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class RecurrenceShape:
    """`width` features, of which `heads` blocks have gates of their own; the convolution has
    `taps`; `kind` is the activation of the other branch."""

    width: int
    heads: int
    taps: int
    kind: ops.ActivationKind


def gated_recurrence(
    weights: Weights, prefix: str, x: Tensor, shape: RecurrenceShape, layer: int
) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{linear_x, linear_y, linear_out, conv_1d}`, and of `<prefix>.rg_lru`
    `recurrent_param` and `{input,recurrent}_gate_{weight,bias}`, matrices [in, out] of each head.
    """
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole recurrent layers")
    row = (shape.heads, shape.width // shape.heads)
    unit = f"{prefix}.rg_lru"

    def project(name: str) -> Tensor:
        return linear(weights, f"{prefix}.{name}", x, row, bias=True)

    def gate(name: str, of: Tensor) -> Tensor:
        matrices = weights.stack(unit, f"{name}_gate_weight", (row[0], row[1], row[1]))
        bias = weights.vector(f"{unit}.{name}_gate_bias", shape.width, stored=row)
        return ops.add(ops.head_linear(of, matrices, transposed=True), bias)

    y = ops.causal_conv(
        project("linear_x"),
        weights.small(f"{prefix}.conv_1d.weight", (shape.width, 1, shape.taps)),
        weights.vector(f"{prefix}.conv_1d.bias", shape.width),
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, shape.width)),
        ops.ActivationKind.IDENTITY,
    )
    gated = ops.gated_activation(gate("input", y), y, ops.ActivationKind.SIGMOID)
    y = ops.gated_recurrence(
        gated,
        gate("recurrent", y),
        weights.vector(f"{unit}.recurrent_param", shape.width),
        state_cache(x.trace, f"recurrence{layer}", (shape.width,)),
    )
    y = ops.gated_activation(project("linear_y"), y, shape.kind)
    return linear(weights, f"{prefix}.linear_out", y, (x.width,), bias=True)
