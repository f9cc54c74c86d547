"""Qwen3-MoE: Qwen3 with experts in place of most feed-forward layers.

Weights as Qwen3's, and in layers with experts `mlp.gate` (the router) and
`mlp.experts.<i>.{gate,up,down}_proj`, or one stacked tensor for all experts.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import decoder, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.moe import Experts, moe
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.models import causal_lm
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import (
    DecoderSizes,
    activation,
    flag,
    layer_numbers,
    make_rotary_table,
    positive_int,
    read_routing,
    sliding_windows,
)
from pagemill.ops.trace import Tensor


class Qwen3MoeModel:
    """One Qwen3-MoE model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self._rotary = make_rotary_table(config, self._sizes.head_dim)
        self._activation = activation(config, "hidden_act", "silu")
        self._attention_bias = flag(config, "attention_bias", False)
        self._windows = sliding_windows(config, self._sizes.layers)
        # transformers 5 writes the number of experts under the name that Mixtral gave it.
        count = positive_int(config, "num_experts", positive_int(config, "num_local_experts", 128))
        self._experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 768),
            self._activation,
            read_routing(config, count, 8, renormalize=flag(config, "norm_topk_prob", False)),
        )
        self._dense_layers = layer_numbers(config, "mlp_only_layers")
        self._sparse_step = positive_int(config, "decoder_sparse_step", 1)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = bind_rotary(weights, "inv_freq", self._rotary, inputs.positions, interleaved=False)
        return causal_lm.hidden(
            weights, inputs, self._sizes, lambda i, x: self._layer(weights, i, x, rotary)
        )

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return causal_lm.logits(weights, rows, self._sizes)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, sizes.rms_norm_eps)
        attended = decoder.rotary_attention(
            weights,
            f"{prefix}.self_attn",
            normed,
            sizes.attention(window=self._windows[layer]),
            rotary,
            f"kv{layer}",
            bias=self._attention_bias,
            output_bias=self._attention_bias,
            qk_norm_eps=sizes.rms_norm_eps,
        )
        x = ops.add(x, attended)
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, sizes.rms_norm_eps)
        return ops.add(x, self._feed_forward(weights, layer, normed))

    def _feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"model.layers.{layer}.mlp"
        if layer not in self._dense_layers and (layer + 1) % self._sparse_step == 0:
            return moe(weights, prefix, x, self._experts)
        return mlp.gated_mlp(weights, prefix, x, self._sizes.intermediate_size, self._activation)
