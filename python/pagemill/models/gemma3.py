"""Gemma 3 (text): sliding and full attention layers, norms on queries, keys and the end of each
branch.

Weights as Llama's, plus `self_attn.{q,k}_norm`, `pre_feedforward_layernorm` and
`post_feedforward_layernorm`. A checkpoint stores norm weights minus 1, GGUF stores them whole
(`norm_weight_offset`).
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
    layer_types,
    make_rotary_table,
    number,
    positive_int,
    refuse,
)
from pagemill.ops.trace import Tensor

_SLIDING, _FULL = "sliding_attention", "full_attention"


class Gemma3Model:
    """One Gemma 3 text model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        refuse(
            config,
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "attention_bias",
            "use_bidirectional_attention",
        )
        self._sizes = DecoderSizes.read(config, tied_by_default=True)
        self._types = _layer_types(config, self._sizes.layers)
        self._window = positive_int(config, "sliding_window")
        self._rotary = {
            kind: make_rotary_table(config, self._sizes.head_dim, kind)
            for kind in sorted(set(self._types))
        }
        scalar = number(config, "query_pre_attn_scalar", self._sizes.head_dim, least=1e-6)
        self._scale = scalar**-0.5
        self._norm_offset = number(config, "norm_weight_offset", 1.0)
        self._activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotary = {
            kind: bind_rotary(
                weights, f"inv_freq.{kind}", table, inputs.positions, interleaved=False
            )
            for kind, table in self._rotary.items()
        }
        # `transformers` rounds this scale to the type of the weights: here, as there with f32
        # weights, that is f32.
        return causal_lm.hidden(
            weights,
            inputs,
            self._sizes,
            lambda i, x: self._layer(weights, i, x, rotary[self._types[i]]),
            scale=self._sizes.hidden_size**0.5,
            norm_offset=self._norm_offset,
        )

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return causal_lm.logits(weights, rows, self._sizes)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(
            weights, name, x, self._sizes.rms_norm_eps, weight_offset=self._norm_offset
        )

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix = f"model.layers.{layer}"
        normed = self._norm(weights, f"{prefix}.input_layernorm", x)
        window = self._window if self._types[layer] == _SLIDING else 0
        attended = decoder.rotary_attention(
            weights,
            f"{prefix}.self_attn",
            normed,
            self._sizes.attention(scale=self._scale, window=window),
            rotary,
            f"kv{layer}",
            qk_norm_eps=self._sizes.rms_norm_eps,
            norm_offset=self._norm_offset,
        )
        x = ops.add(x, self._norm(weights, f"{prefix}.post_attention_layernorm", attended))
        normed = self._norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        inner = mlp.gated_mlp(
            weights, f"{prefix}.mlp", normed, self._sizes.intermediate_size, self._activation
        )
        return ops.add(x, self._norm(weights, f"{prefix}.post_feedforward_layernorm", inner))


def _layer_types(config: Config, layers: int) -> tuple[str, ...]:
    """The kind of each layer: stated, or every `sliding_window_pattern`-th is full."""
    types = layer_types(config, layers, (_SLIDING, _FULL))
    if types is not None:
        return types
    pattern = positive_int(config, "sliding_window_pattern", 6)
    return tuple(_SLIDING if (layer + 1) % pattern else _FULL for layer in range(layers))
