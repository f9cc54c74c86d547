"""Jina embeddings 2: BERT with ALiBi to both sides in place of positions, and gates.

Weights as BERT's, and `encoder.layer.<i>.mlp.{gated_layers, wo, layernorm}`; GGUF files have the
rows of `gated_layers` as two matrices or as one. The model of code has norms of all queries and of
all keys of a token, and two norms of each sum: `attention.self.layer_norm_{q,k}`, `layer_norm_1`,
`mlp.{up_gated_layer, down_layer}`, `layer_norm_2`.
"""

from __future__ import annotations

import numpy as np

from pagemill import ops
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.linear import own_columns
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_GATES = {"geglu": ActivationKind.GELU, "reglu": ActivationKind.RELU}
_MAX_BIASES = 2**23  # 32 MiB of the program


class Jina2Model(Encoder):
    """One Jina embeddings 2 encoder."""

    base_prefix = "bert."
    names = EncoderNames(positions=None, down_norm="mlp.layernorm")
    ignored = {
        **Encoder.ignored,
        r"(.*\.)?embeddings\.position_embeddings\..*": "distances are those of ALiBi",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, positions="alibi")
        gates = config.get("feed_forward_type", "geglu")
        if not isinstance(gates, str) or gates not in _GATES:
            raise ModelConfigError(f"feed_forward_type is {shown(gates)}; known: geglu, reglu")
        self.activation = _GATES[gates]
        self._slopes = alibi_slopes(self.sizes.heads)
        distances = 2 * self.sizes.max_positions - 1
        if len(self._slopes) * distances > _MAX_BIASES:
            raise ModelConfigError(
                f"max_position_embeddings {self.sizes.max_positions} of {len(self._slopes)} heads"
                f" are {distances} distances for each; at most {_MAX_BIASES} together"
            )

    def distance_biases(self, weights: Weights, layer: int, shape: AttentionShape) -> Tensor:
        del layer
        heads = shape.features(shape.heads)
        slopes = self._slopes[heads.begin // shape.head_dim : heads.end // shape.head_dim]
        reach = self.sizes.max_positions - 1
        distances = np.abs(np.arange(-reach, reach + 1, dtype=np.float32))
        biases = -np.outer(np.asarray(slopes, np.float32), distances)
        return weights.constant("alibi_biases", biases.tolist())

    def normalize(
        self, weights: Weights, layer: int, qk: tuple[Tensor, Tensor], shape: AttentionShape
    ) -> tuple[Tensor, Tensor]:
        module, (q, k) = f"{self.prefix(layer)}.attention.self", qk
        if not weights.has(f"{module}.layer_norm_q.weight"):
            return qk
        return (
            self._of_all_heads(weights, f"{module}.layer_norm_q", q, shape),
            self._of_all_heads(weights, f"{module}.layer_norm_k", k, shape),
        )

    def _of_all_heads(
        self, weights: Weights, name: str, x: Tensor, shape: AttentionShape
    ) -> Tensor:
        """x [T, heads of this rank, head_dim], of which all heads of a token are normalized."""
        own, dim = shape.features(shape.heads), shape.head_dim
        # In a group of one this is a copy, whose rows are of all heads.
        y = self.norm(weights, name, ops.all_gather(x, own.total, shard=shape.shard))
        y = own_columns(y, own, (own.size,))
        return ops.concat(*ops.split(y, own.size // 2), row_shape=(own.size // dim, dim))

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        if weights.has(f"{name}.up_gated_layer.weight"):
            parts = MlpParts(("up_gated_layer",), "down_layer", gate_last=True, down_bias=True)
            return mlp(weights, name, x, self.sizes.intermediate_size, self.activation, parts)
        divided = weights.has(f"{name}.gated_layers_w.weight")
        up = ("gated_layers_w", "gated_layers_v") if divided else ("gated_layers",)
        parts = MlpParts(up, "wo", down_bias=True)
        return mlp(weights, name, x, self.sizes.intermediate_size, self.activation, parts)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        if not weights.has(f"{prefix}.layer_norm_1.weight"):
            return super().layer(weights, layer, x, rotary)
        y = ops.add(self.attention(weights, layer, x, rotary), x)
        y = self.norm(weights, f"{prefix}.{self.names.attended_norm}", y)
        x = self.norm(weights, f"{prefix}.layer_norm_1", ops.add(y, x))
        y = self.feed_forward(weights, layer, x)
        return self.norm(weights, f"{prefix}.layer_norm_2", ops.add(y, x))

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
