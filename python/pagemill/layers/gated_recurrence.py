"""The recurrent block of Griffin and RecurrentGemma: a short convolution and a gated linear
recurrence in one branch, an activation in the other. Ranks divide the heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import divide_evenly, linear, row_parallel
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
    dim, out, unit = shape.width // shape.heads, f"{prefix}.linear_out", f"{prefix}.rg_lru"
    own = divide_evenly(weights, [out], shape.heads, dim, "recurrent layers, by heads")
    features = own.times(dim)
    order = () if own.whole else features.indices

    def project(name: str) -> Tensor:
        row = (own.size, dim)
        return linear(weights, f"{prefix}.{name}", x, row, bias=True, rows=features)

    def gate(name: str, of: Tensor) -> Tensor:
        of_all = (shape.heads, dim, dim)
        matrices = weights.stack(unit, f"{name}_gate_weight", of_all, matrices=own)
        bias = weights.vector(
            f"{unit}.{name}_gate_bias", shape.width, part=features, stored=of_all[:2]
        )
        return ops.add(ops.head_linear(of, matrices, transposed=True), bias)

    y = ops.causal_conv(
        project("linear_x"),
        weights.small(f"{prefix}.conv_1d.weight", (shape.width, 1, shape.taps), row_order=order),
        weights.vector(f"{prefix}.conv_1d.bias", shape.width, part=features),
        state_cache(x.trace, f"conv{layer}", (shape.taps - 1, features.size)),
        ops.ActivationKind.IDENTITY,
    )
    gated = ops.gated_activation(gate("input", y), y, ops.ActivationKind.SIGMOID)
    y = ops.gated_recurrence(
        gated,
        gate("recurrent", y),
        weights.vector(f"{unit}.recurrent_param", shape.width, part=features),
        state_cache(x.trace, f"recurrence{layer}", (features.size,)),
    )
    y = ops.gated_activation(project("linear_y"), y, shape.kind)
    return row_parallel(weights, out, y, x.width, columns=features, bias=True)
