"""Muse Glimmer (text): norms in front of and behind each branch, gated attention, norms without
weights of embeddings and of each head of q and k, sliding windows, and full layers without
positions.

Weights as Llama's, plus `self_attn.gate_proj`, `pre_feedforward_layernorm` and
`post_feedforward_layernorm`; norms of layers hold the weight less 1, the last norm all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import (
    activation,
    epsilon,
    number,
    positive_int,
    rotary_by_base,
    windows_by_type,
)
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class MuseGlimmerModel(Decoder):
    """One Muse Glimmer model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        sizes = self.sizes
        self._post_eps = epsilon(config, "post_norm_eps", 1e-8)
        self.attention_parts = replace(
            self.attention_parts, qk_norm=QkNorm(sizes.norm_eps, weight=False), gate="gate_proj"
        )
        scale = number(config, "qk_scale_factor", 3.87, least=1e-6)
        self.attention_scale = scale * sizes.head_dim**-0.5
        self.windows = _windows(config, sizes.layers)
        self.rotary = rotary_by_base(config, self.rotary_in_windows(), sizes.head_dim)
        self.activation = activation(config, "hidden_activation", "silu")
        self.logits_scale = number(config, "output_multiplier", 0.19611613513818404)
        self.logits_cap = number(config, "final_logit_softcapping", 20.0, least=0.0)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = super().embed(weights, replace(inputs, media=None))
        x = norm.rms_norm(weights, self.names.embedding, x, self.sizes.norm_eps, weight=False)
        return inputs.with_media(x, 1.0)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix, eps, post = self.prefix(layer), self.sizes.norm_eps, self._post_eps

        def centered(name: str, x: Tensor, eps: float) -> Tensor:
            return norm.rms_norm(weights, f"{prefix}.{name}", x, eps, weight_offset=1.0)

        y = self.attention(weights, layer, centered("input_layernorm", x, eps), rotary)
        x = ops.add(x, centered("post_attention_layernorm", y, post))
        y = self.feed_forward(weights, layer, centered("pre_feedforward_layernorm", x, eps))
        return ops.add(x, centered("post_feedforward_layernorm", y, post))


def _windows(config: Config, layers: int) -> Sequence[int]:
    """By default every fourth layer is full, counted backward from the last."""
    if config.get("layer_types") is not None:
        return windows_by_type(config, layers)
    window = positive_int(config, "sliding_window", 2048)
    return [window if (layers - 1 - layer) % 4 else 0 for layer in range(layers)]
