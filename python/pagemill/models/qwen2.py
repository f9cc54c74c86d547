"""Qwen2 and Qwen2.5: Llama with biases on q, k and v, and sliding windows on some layers.

Weights as Llama's, plus `self_attn.{q,k,v}_proj.bias`.
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
    make_rotary_table,
    sliding_windows,
)
from pagemill.ops.trace import Tensor

_EMBEDDING = "model.embed_tokens"


class Qwen2Model:
    """One Qwen2 model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self._rotary = make_rotary_table(config, self._sizes.head_dim)
        self._activation = activation(config, "hidden_act", "silu")
        self._windows = sliding_windows(config, self._sizes.layers)

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
        table = (sizes.vocab_size, sizes.hidden_size)
        rotary = bind_rotary(weights, "inv_freq", self._rotary, inputs.positions, interleaved=False)
        x = embedding.embedding(weights, _EMBEDDING, inputs.token_ids, table)
        x = stack(weights, x, sizes.layers, lambda i, x: self._layer(weights, i, x, rotary))
        return norm.rms_norm(weights, "model.norm", x, sizes.rms_norm_eps)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        tied_to = _EMBEDDING if self._sizes.tied else None
        return embedding.logits(weights, rows, self._sizes.vocab_size, tied_to=tied_to)

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.input_layernorm", x, sizes.rms_norm_eps)
        x = ops.add(x, self._attention(weights, layer, normed, rotary))
        normed = norm.rms_norm(weights, f"{prefix}.post_attention_layernorm", x, sizes.rms_norm_eps)
        inner = mlp.gated_mlp(
            weights, f"{prefix}.mlp", normed, sizes.intermediate_size, self._activation
        )
        return ops.add(x, inner)

    def _attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}.self_attn"
        shape = attention.AttentionShape(
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            scale=sizes.head_dim**-0.5,
            window=self._windows[layer],
        )
        shape = attention.divide(weights, shape, f"{prefix}.o_proj")
        names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        q, k, v = attention.project_qkv(weights, names, x, shape, bias=True)
        q, k = rotary(q, k)
        attended = attention.attend(q, k, v, shape, f"kv{layer}")
        return attention.output(weights, f"{prefix}.o_proj", attended, shape, sizes.hidden_size)
