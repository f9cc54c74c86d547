"""An embedding of the token for each layer, added behind it (Gemma 3n and 4)."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class TokenLayers:
    """Embeddings of `width` for each of `layers`, of the first `vocab` tokens; others have those of
    token 0. `eps` is that of the norms."""

    width: int
    vocab: int
    layers: int
    eps: float

    def embedding(self, weights: Weights, layer: int, token_ids: Tensor, start: Tensor) -> Tensor:
        """[T, width]: the token's embedding for a layer, half of it from that of the model, `start`
        [T, H].

        Weights: `model.{embed_tokens_per_layer,per_layer_model_projection,
        per_layer_projection_norm}`.
        """
        width, total = self.width, self.width * self.layers
        part = Part(layer * width, (layer + 1) * width, total)
        name = "model.embed_tokens_per_layer.weight"
        table = weights.matrix(name, (self.vocab, total), columns=part)
        own = ops.embedding(token_ids, table, scale=width**0.5, outside=0)
        of_model = linear(weights, "model.per_layer_model_projection", start, (width,), rows=part)
        of_model = ops.scale(of_model, start.width**-0.5)
        of_model = norm.rms_norm(weights, "model.per_layer_projection_norm", of_model, self.eps)
        return ops.scale(ops.add(of_model, own), 2**-0.5)

    def branch(
        self, weights: Weights, prefix: str, x: Tensor, token: Tensor, kind: ops.ActivationKind
    ) -> Tensor:
        """x [T, H] and the token's embedding for the layer -> what the layer adds, [T, H].

        Weights: `<prefix>.{per_layer_input_gate,per_layer_projection,post_per_layer_input_norm}`.
        """
        gate = linear(weights, f"{prefix}.per_layer_input_gate", x, (self.width,))
        y = ops.gated_activation(gate, token, kind)
        y = linear(weights, f"{prefix}.per_layer_projection", y, (x.width,))
        return norm.rms_norm(weights, f"{prefix}.post_per_layer_input_norm", y, self.eps)
