"""Gemma 3 (text): sliding and full attention layers, norms on queries, keys and each branch's end.

Weights as Llama's, plus `self_attn.{q,k}_norm`, `pre_feedforward_layernorm` and
`post_feedforward_layernorm`. A checkpoint stores norm weights less 1, GGUF stores them whole
(`norm_weight_offset`).
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import attention, embedding, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.layers.stack import stack
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

_EMBEDDING = "model.embed_tokens"
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
        sizes = self._sizes
        return ModelTraits(
            sizes.vocab_size, sizes.hidden_size, sizes.max_positions, causal=True, generates=True
        )

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        sizes = self._sizes
        rotary = {
            kind: bind_rotary(
                weights, f"inv_freq.{kind}", table, inputs.positions, interleaved=False
            )
            for kind, table in self._rotary.items()
        }
        # `transformers` rounds this scale to the type of the weights: here, as there with f32
        # weights, that is f32.
        x = embedding.embedding(
            weights,
            _EMBEDDING,
            inputs.token_ids,
            (sizes.vocab_size, sizes.hidden_size),
            scale=sizes.hidden_size**0.5,
        )
        x = stack(
            weights,
            x,
            sizes.layers,
            lambda i, x: self._layer(weights, i, x, rotary[self._types[i]]),
        )
        return self._norm(weights, "model.norm", x)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        tied_to = _EMBEDDING if self._sizes.tied else None
        return embedding.logits(weights, rows, self._sizes.vocab_size, tied_to=tied_to)

    def _norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(
            weights, name, x, self._sizes.rms_norm_eps, weight_offset=self._norm_offset
        )

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        prefix = f"model.layers.{layer}"
        normed = self._norm(weights, f"{prefix}.input_layernorm", x)
        attended = self._attention(weights, layer, normed, rotary)
        x = ops.add(x, self._norm(weights, f"{prefix}.post_attention_layernorm", attended))
        normed = self._norm(weights, f"{prefix}.pre_feedforward_layernorm", x)
        inner = mlp.gated_mlp(
            weights, f"{prefix}.mlp", normed, self._sizes.intermediate_size, self._activation
        )
        return ops.add(x, self._norm(weights, f"{prefix}.post_feedforward_layernorm", inner))

    def _attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}.self_attn"
        shape = attention.AttentionShape(
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            scale=self._scale,
            window=self._window if self._types[layer] == _SLIDING else 0,
        )
        shape = attention.divide(weights, shape, f"{prefix}.o_proj")
        names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        q, k, v = attention.project_qkv(weights, names, x, shape)
        q = self._norm(weights, f"{prefix}.q_norm", q)
        k = self._norm(weights, f"{prefix}.k_norm", k)
        q, k = rotary(q, k)
        attended = attention.attend(q, k, v, shape, f"kv{layer}")
        return attention.output(weights, f"{prefix}.o_proj", attended, shape, sizes.hidden_size)


def _layer_types(config: Config, layers: int) -> tuple[str, ...]:
    """The kind of each layer: stated, or every `sliding_window_pattern`-th is full."""
    types = layer_types(config, layers, (_SLIDING, _FULL))
    if types is not None:
        return types
    pattern = positive_int(config, "sliding_window_pattern", 6)
    return tuple(_SLIDING if (layer + 1) % pattern else _FULL for layer in range(layers))
