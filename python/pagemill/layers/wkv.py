"""The blocks of RWKV-4: a weighted mean of earlier values in place of attention, and a feed-forward
layer, both of which read each token mixed with the one before it.

Every rank computes whole ones.
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.state_space import state_cache
from pagemill.ops.trace import Tensor
from pagemill.ops.wkv import STATE_ROWS

Mix = Callable[[str], Tensor]


def wkv_mixer(weights: Weights, prefix: str, x: Tensor, width: int, layer: int) -> Tensor:
    """x [T, H] -> [T, H] by `width` channels; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{key, value, receptance, output}`, `time_mix_{key, value, receptance}`,
    `time_decay` and `time_first`.
    """
    if weights.shard.ranks > 1:
        weights.note("every rank computes whole RWKV layers")
    mixed = _token_shift(weights, prefix, x, f"mixer{layer}")

    def project(name: str) -> Tensor:
        return linear(weights, f"{prefix}.{name}", mixed(name), (width,))

    y = ops.wkv(
        project("key"),
        project("value"),
        weights.vector(f"{prefix}.time_decay", width),
        weights.vector(f"{prefix}.time_first", width),
        state_cache(x.trace, f"wkv{layer}", (STATE_ROWS, width)),
    )
    y = ops.gated_activation(project("receptance"), y, ops.ActivationKind.SIGMOID)
    return linear(weights, f"{prefix}.output", y, (x.width,))


def shifted_mlp(weights: Weights, prefix: str, x: Tensor, size: int, layer: int) -> Tensor:
    """x [T, H] -> [T, H] by `size` features; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{key, receptance, value}` and `time_mix_{key, receptance}`.
    """
    mixed = _token_shift(weights, prefix, x, f"mlp{layer}")
    y = linear(weights, f"{prefix}.key", mixed("key"), (size,))
    y = ops.activation(y, ops.ActivationKind.RELU_SQUARED)
    y = linear(weights, f"{prefix}.value", y, (x.width,))
    gate = linear(weights, f"{prefix}.receptance", mixed("receptance"), (x.width,))
    return ops.gated_activation(gate, y, ops.ActivationKind.SIGMOID)


def _token_shift(weights: Weights, prefix: str, x: Tensor, cache: str) -> Mix:
    """Makes what the projection `name` reads of x: of each channel a part is that of the token
    before, a convolution of two taps."""

    def mixed(name: str) -> Tensor:
        return ops.causal_conv(
            x,
            weights.shares(f"{prefix}.time_mix_{name}", x.width, stored=(1, 1, x.width)),
            None,
            state_cache(x.trace, f"{cache}.{name}", (1, x.width)),
            ops.ActivationKind.IDENTITY,
        )

    return mixed
