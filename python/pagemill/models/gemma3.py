"""Gemma 3 (text): sliding and full attention layers, norms on queries, keys and the end of each
branch. With `use_bidirectional_attention`, as in EmbeddingGemma, it is an encoder, in whose sliding
layers a query sees half a window on both sides.

Weights as Llama's, plus `self_attn.{q,k}_norm`, `pre_feedforward_layernorm` and
`post_feedforward_layernorm`. A checkpoint stores norm weights minus 1, GGUF stores them whole
(`norm_weight_offset`).
"""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    activation,
    flag,
    layer_count,
    layer_types,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Gemma3Model(Decoder):
    """One Gemma 3 text model."""

    def __init__(self, config: Config) -> None:
        both_ways = flag(config, "use_bidirectional_attention", False)
        if both_ways:
            refuse(config, "attn_logit_softcapping")
        types = _layer_types(config)
        super().__init__(config, tied_by_default=True, layer_types=types)
        window = positive_int(config, "sliding_window")
        self.both_ways = both_ways
        window = window // 2 + 1 if both_ways else window
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        head_dim = self.sizes.head_dim
        self.attention_scale = number(config, "query_pre_attn_scalar", head_dim, least=1e-6) ** -0.5
        self.soft_cap = number(config, "attn_logit_softcapping", 0.0, least=0.0)
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.attention_parts = replace(
            self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps, self.norm_offset)
        )
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = self.sizes.hidden_size**0.5  # as in Gemma

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.input_layernorm", x)
        y = self.attention(weights, layer, y, rotary)
        x = ops.add(x, self.norm(weights, f"{prefix}.post_attention_layernorm", y))
        y = self.norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        y = self.feed_forward(weights, layer, y)
        return ops.add(x, self.norm(weights, f"{prefix}.post_feedforward_layernorm", y))


def _layer_types(config: Config) -> tuple[str, ...]:
    """The kind of each layer: stated, or every `sliding_window_pattern`-th is full."""
    layers = layer_count(config)
    types = layer_types(config, layers, (SLIDING, FULL))
    if types is not None:
        return types
    pattern = positive_int(config, "sliding_window_pattern", 6)
    return tuple(SLIDING if (layer + 1) % pattern else FULL for layer in range(layers))
