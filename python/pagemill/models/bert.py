"""BERT: a bidirectional encoder whose vectors are pooled.

Weights: `embeddings.{word,position,token_type}_embeddings`, `embeddings.LayerNorm`,
`encoder.layer.<i>.attention.{self.{query,key,value}, output.{dense,LayerNorm}}`,
`encoder.layer.<i>.{intermediate.dense, output.{dense,LayerNorm}}`.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelConfigError, ModelTraits, StepInputs
from pagemill.models.config_keys import activation, epsilon, positive_int, refuse
from pagemill.ops.trace import Tensor


class BertModel:
    """One BERT encoder; every token is of token type 0."""

    ignored = {
        r"embeddings\.position_ids": "positions count up from 0",
        r"pooler\..*": "a classifier's layer over the first token",
        r"cls\..*": "heads of the training objectives",
    }

    def __init__(self, config: Config) -> None:
        refuse(config, "is_decoder", "add_cross_attention")
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise ModelConfigError("BERT with relative position embeddings is not supported")
        self._vocab = positive_int(config, "vocab_size")
        self._hidden = positive_int(config, "hidden_size")
        self._intermediate = positive_int(config, "intermediate_size")
        self._layers = positive_int(config, "num_hidden_layers")
        self._positions = positive_int(config, "max_position_embeddings")
        self._types = positive_int(config, "type_vocab_size", 2)
        self._eps = epsilon(config, "layer_norm_eps", 1e-12)
        self._activation = activation(config, "hidden_act", "gelu")
        heads = positive_int(config, "num_attention_heads")
        head_dim, rest = divmod(self._hidden, heads)
        if rest:
            raise ModelConfigError(f"{heads} heads cannot share {self._hidden} features")
        self._shape = attention.AttentionShape(heads, heads, head_dim, scale=head_dim**-0.5)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return ModelTraits(
            self._vocab, self._hidden, self._positions, causal=False, generates=False
        )

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        prefix, hidden = "embeddings", self._hidden
        words = embedding.embedding(
            weights, f"{prefix}.word_embeddings", inputs.token_ids, (self._vocab, hidden)
        )
        kind = weights.row(f"{prefix}.token_type_embeddings.weight", 0, (self._types, hidden))
        positions = embedding.embedding(
            weights, f"{prefix}.position_embeddings", inputs.positions, (self._positions, hidden)
        )
        x = ops.add(ops.add(words, kind), positions)
        x = norm.layer_norm(weights, f"{prefix}.LayerNorm", x, self._eps)
        return stack(weights, x, self._layers, lambda i, x: self._layer(weights, i, x))

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("a BERT encoder has no language model head")

    def _layer(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"encoder.layer.{layer}"
        inner = f"{prefix}.attention.self"
        names = (f"{inner}.query", f"{inner}.key", f"{inner}.value")
        q, k, v = attention.project_qkv(weights, names, x, self._shape, bias=True)
        attended = attention.attend_both_ways(q, k, v, self._shape)
        x = self._close(weights, f"{prefix}.attention.output", attended, x)
        intermediate = f"{prefix}.intermediate.dense"
        y = linear(weights, intermediate, x, (self._intermediate,), bias=True)
        return self._close(weights, f"{prefix}.output", ops.activation(y, self._activation), x)

    def _close(self, weights: Weights, prefix: str, y: Tensor, residual: Tensor) -> Tensor:
        """Ends a branch: projects back, adds the residual, normalizes."""
        y = linear(weights, f"{prefix}.dense", y, (self._hidden,), bias=True)
        return norm.layer_norm(weights, f"{prefix}.LayerNorm", ops.add(y, residual), self._eps)
