"""Lightning attention (arXiv 2405.17381): linear attention whose state decays, at a rate of each
head's own. It is Mamba-2's recurrence with keys for B, queries for C and steps of one. Ranks divide
the heads; the norm of the result is over those of all, which are gathered for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import divide_evenly, linear, own_columns, row_parallel
from pagemill.layers.state_space import state_cache
from pagemill.ops.trace import Tensor

_STEP_OF_ONE = math.log(math.e - 1)  # softplus of it is 1


@dataclass(frozen=True, slots=True)
class LightningShape:
    """`heads` of `head_dim`; a head's state is multiplied by e^-rate for each token. `kind` is
    applied to q, k and v; `eps` is that of the norm of the result."""

    heads: int
    head_dim: int
    rates: tuple[float, ...]
    kind: ops.ActivationKind
    eps: float


def lightning_attention(
    weights: Weights, prefix: str, x: Tensor, shape: LightningShape, layer: int
) -> Tensor:
    """x [T, H] -> [T, H]; the states of layer `layer` have their own cache.

    Weights: `<prefix>.{qkv_proj, norm, output_gate, out_proj}`; qkv_proj has for each head the rows
    of q, k and v.
    """
    dim, out = shape.head_dim, f"{prefix}.out_proj"
    own = divide_evenly(weights, [out], shape.heads, dim, "lightning attention, by heads")
    heads, features = own.size, own.times(dim)
    rows = own.times(3 * dim)
    qkv = linear(weights, f"{prefix}.qkv_proj", x, (heads, 3 * dim), rows=rows)
    q, kv = ops.split(ops.activation(qkv, shape.kind), dim)
    k, v = ops.split(kv, dim)
    # All steps are the same, whatever is in x.
    steps = ops.scale(ops.split(x, heads)[0], 0.0)

    def constants(name: str, values: list[float]) -> Tensor:
        return weights.constant(f"{prefix}.{name}", values)

    y = ops.state_space_scan(
        ops.concat(v, k, q),
        steps,
        constants("log_rates", [math.log(rate) for rate in shape.rates[own.begin : own.end]]),
        norm.zeros(weights, heads),
        constants("steps", [_STEP_OF_ONE] * heads),
        state_cache(x.trace, f"lightning{layer}", (heads, dim, dim)),
        flat=True,
    )
    if not own.whole:
        y = ops.all_gather(y, features.total, shard=weights.shard)
    y = norm.rms_norm(weights, f"{prefix}.norm", y, shape.eps)
    y = own_columns(y, features, (features.size,))
    gate = linear(weights, f"{prefix}.output_gate", x, (y.width,), rows=features)
    y = ops.gated_activation(gate, y, ops.ActivationKind.SIGMOID)
    return row_parallel(weights, out, y, x.width, columns=features)
