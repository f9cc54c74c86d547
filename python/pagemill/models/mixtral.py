"""Mixtral: Llama with experts in place of the feed-forward layers.

Weights as Llama's, with `block_sparse_moe.gate` (the router) and
`block_sparse_moe.experts.<i>.{w1,w3,w2}` (gate, up, down) for `mlp`, or one stacked tensor for all
experts.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import decoder, norm
from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.models import causal_lm
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import (
    DecoderSizes,
    activation,
    flag,
    make_rotary_table,
    positive_int,
    read_routing,
)
from pagemill.ops.trace import Tensor


class MixtralModel:
    """One Mixtral model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self._rotary = make_rotary_table(config, self._sizes.head_dim)
        self._interleaved = flag(config, "rope_interleaved", False)
        has_window = config.get("sliding_window") is not None
        self._window = positive_int(config, "sliding_window") if has_window else 0
        count = positive_int(config, "num_local_experts", 8)
        self._experts = Experts(
            count,
            self._sizes.intermediate_size,
            activation(config, "hidden_act", "silu"),
            read_routing(config, count, 2, renormalize=True),
            gate="w1",
            up="w3",
            down="w2",
        )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = bind_rotary(
            weights, "inv_freq", self._rotary, inputs.positions, interleaved=self._interleaved
        )
        return causal_lm.hidden(
            weights, inputs, self._sizes, lambda i, x: self._layer(weights, i, x, rotary)
        )

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return causal_lm.logits(weights, rows, self._sizes)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, sizes.rms_norm_eps)
        shape = sizes.attention(window=self._window)
        attended = decoder.rotary_attention(
            weights, f"{prefix}.self_attn", normed, shape, rotary, f"kv{layer}"
        )
        x = ops.add(x, attended)
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, sizes.rms_norm_eps)
        return ops.add(x, moe(weights, f"{prefix}.block_sparse_moe", normed, self._experts))
