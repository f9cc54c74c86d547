"""Qwen2 and Qwen2.5: Llama with biases on q, k and v, and sliding windows on some layers.

Weights as Llama's, plus `self_attn.{q,k,v}_proj.bias`.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import decoder, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.models import causal_lm
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import (
    DecoderSizes,
    activation,
    make_rotary_table,
    sliding_windows,
)
from pagemill.ops.trace import Tensor


class Qwen2Model:
    """One Qwen2 model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self.rotary_table = make_rotary_table(config, self._sizes.head_dim)
        self._activation = activation(config, "hidden_act", "silu")
        self._windows = sliding_windows(config, self._sizes.layers)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = bind_rotary(
            weights, "inv_freq", self.rotary_table, inputs.positions, interleaved=False
        )
        return self.hidden_by(weights, inputs, rotary)

    def hidden_by(self, weights: Weights, inputs: StepInputs, rotary: Rotary) -> Tensor:
        """As `hidden`, with this rotary embedding."""
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
            bias=True,
        )
        x = ops.add(x, attended)
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, sizes.rms_norm_eps)
        inner = mlp.gated_mlp(
            weights, f"{prefix}.mlp", normed, sizes.intermediate_size, self._activation
        )
        return ops.add(x, inner)
