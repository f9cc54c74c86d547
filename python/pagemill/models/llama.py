"""Llama, and the models that share its architecture (SmolLM2, ...).

Weights: `model.layers.<i>.{input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm,
mlp.{gate,up,down}_proj}`, `model.{embed_tokens,norm}`, `lm_head` unless tied. A GGUF file stores
the rows of q_proj and k_proj in the order of interleaved rotary pairs (`rope_interleaved`).
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import attention, embedding, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import DecoderSizes, activation, flag, make_rotary_table
from pagemill.ops.trace import Tensor

_EMBEDDING = "model.embed_tokens"


class LlamaModel:
    """One Llama model."""

    ignored = {
        **IGNORED_IN_DECODERS,
        r"rope_freqs\.weight": "GGUF's factors of frequencies are read as configuration",
    }

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=False)
        self._rotary = make_rotary_table(config, self._sizes.head_dim)
        self._interleaved = flag(config, "rope_interleaved", False)
        self._activation = activation(config, "hidden_act", "silu")
        self._attention_bias = flag(config, "attention_bias", False)
        self._mlp_bias = flag(config, "mlp_bias", False)

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
        rotary = bind_rotary(
            weights, "inv_freq", self._rotary, inputs.positions, interleaved=self._interleaved
        )
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
            weights,
            f"{prefix}.mlp",
            normed,
            sizes.intermediate_size,
            self._activation,
            bias=self._mlp_bias,
        )
        return ops.add(x, inner)

    def _attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"model.layers.{layer}.self_attn"
        out, hidden, bias = f"{prefix}.o_proj", sizes.hidden_size, self._attention_bias
        shape = attention.AttentionShape(
            sizes.heads, sizes.kv_heads, sizes.head_dim, scale=sizes.head_dim**-0.5
        )
        shape = attention.divide(weights, shape, out)
        names = (f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        q, k, v = attention.project_qkv(weights, names, x, shape, bias=bias)
        q, k = rotary(q, k)
        attended = attention.attend(q, k, v, shape, f"kv{layer}")
        return attention.output(weights, out, attended, shape, hidden, bias=bias)
