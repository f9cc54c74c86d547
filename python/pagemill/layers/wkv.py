"""The blocks of RWKV-4: a weighted mean of earlier values in place of attention, and a feed-forward
layer, which RWKV-5 and RWKV-6 have, too. Both read each token mixed with the previous one.

Ranks divide the channels and the features of the feed-forward layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.computed import shares
from pagemill.layers.linear import linear, row_parallel
from pagemill.layers.state_space import state_cache
from pagemill.ops.trace import Tensor
from pagemill.ops.wkv import STATE_ROWS

Mix = Callable[[str], Tensor]


@dataclass(frozen=True, slots=True)
class TokenShift:
    """How the shares that mix tokens are stored, one for each channel: under names that begin with
    `stem`, as shares of the token itself, or if `of_previous` of the previous one."""

    stem: str
    of_previous: bool

    def mixed(self, weights: Weights, prefix: str, x: Tensor, cache: str) -> Mix:
        """Makes what the projection `name` reads of x [T, H]: a convolution of two taps. Caches of
        states have names that begin with `cache`."""

        def mix(name: str) -> Tensor:
            share = f"{prefix}.{self.stem}{name}"
            return ops.causal_conv(
                x,
                shares(weights, share, x.width, of_previous=self.of_previous),
                None,
                state_cache(x.trace, f"{cache}.{name}", (1, x.width)),
                ops.ActivationKind.IDENTITY,
            )

        return mix


RWKV4_SHIFT = TokenShift("time_mix_", of_previous=False)
"""That of RWKV-5, too."""


def wkv_mixer(weights: Weights, prefix: str, x: Tensor, width: int, layer: int) -> Tensor:
    """x [T, H] -> [T, H] by `width` channels; the states of layer `layer` have their own caches.

    Weights: `<prefix>.{key, value, receptance, output}`, `time_mix_{key, value, receptance}`,
    `time_decay` and `time_first`.
    """
    out = f"{prefix}.output"
    own = weights.shard.part(width, weights.block_elements(f"{out}.weight"))
    mixed = RWKV4_SHIFT.mixed(weights, prefix, x, f"mixer{layer}")

    def project(name: str) -> Tensor:
        return linear(weights, f"{prefix}.{name}", mixed(name), (own.size,), rows=own)

    y = ops.wkv(
        project("key"),
        project("value"),
        weights.vector(f"{prefix}.time_decay", width, part=own),
        weights.vector(f"{prefix}.time_first", width, part=own),
        state_cache(x.trace, f"wkv{layer}", (STATE_ROWS, own.size)),
    )
    y = ops.gated_activation(project("receptance"), y, ops.ActivationKind.SIGMOID)
    return row_parallel(weights, out, y, x.width, columns=own)


def shifted_mlp(
    weights: Weights, prefix: str, of_key: Tensor, of_receptance: Tensor, size: int
) -> Tensor:
    """What key and receptance read, both [T, H] -> [T, H] by `size` features.

    Weights: `<prefix>.{key, receptance, value}`.
    """
    y = squared_mlp(weights, prefix, of_key, size)
    own = weights.shard.part(y.width)
    gate = linear(weights, f"{prefix}.receptance", of_receptance, (own.size,), rows=own)
    if not own.whole:
        gate = ops.all_gather(gate, own.total, shard=weights.shard)
    return ops.gated_activation(gate, y, ops.ActivationKind.SIGMOID)


def squared_mlp(weights: Weights, prefix: str, x: Tensor, size: int) -> Tensor:
    """x [T, H] -> value(relu(key(x)) ** 2), [T, H], by `size` features.

    Weights: `<prefix>.{key, value}`.
    """
    own = weights.shard.part(size, weights.block_elements(f"{prefix}.value.weight"))
    y = linear(weights, f"{prefix}.key", x, (own.size,), rows=own)
    y = ops.activation(y, ops.ActivationKind.RELU_SQUARED)
    return row_parallel(weights, f"{prefix}.value", y, x.width, columns=own)
