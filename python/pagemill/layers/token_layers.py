"""An embedding of the token for each layer, added behind it (Gemma 3n and 4)."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor

_TABLE = "model.embed_tokens_per_layer.weight"


@dataclass(frozen=True, slots=True)
class TokenLayers:
    """Embeddings of `width` for each of `layers`, of the first `vocab` tokens; others have those of
    token 0. `eps` is that of the norms."""

    width: int
    vocab: int
    layers: int
    eps: float

    def embedding(
        self,
        weights: Weights,
        layer: int,
        token_ids: Tensor,
        start: Tensor,
        media: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """[T, width]: the token's embedding for a layer, half of it from that of the model, `start`
        [T, H]. The first of `media`, [N, width] (`of_one`), are in place of the token's own at the
        rows that the second, i32 [N], names.

        Weights: `model.{embed_tokens_per_layer,per_layer_model_projection,
        per_layer_projection_norm}`.
        """
        width, part = self.width, self._part(layer)
        table = weights.matrix(_TABLE, (self.vocab, part.total), columns=part)
        own = ops.embedding(token_ids, table, scale=width**0.5, outside=0)
        if media is not None:
            own = ops.scatter_rows(own, *media)
        of_model = linear(weights, "model.per_layer_model_projection", start, (width,), rows=part)
        of_model = ops.scale(of_model, start.width**-0.5)
        of_model = norm.rms_norm(weights, "model.per_layer_projection_norm", of_model, self.eps)
        return ops.scale(ops.add(of_model, own), 2**-0.5)

    def of_one(self, weights: Weights, token: int, rows: Tensor) -> list[Tensor]:
        """For each layer the embedding of one token, without that of the model, as often as there
        are `rows`, i32 [N]: [N, width]."""
        total = self.width * self.layers
        row = Part(token, token + 1, self.vocab)
        table = weights.matrix(_TABLE, (self.vocab, total), rows=row)
        own = ops.embedding(rows, table, scale=self.width**0.5, outside=0)
        return side_by_side(own, self.width)

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

    def _part(self, layer: int) -> Part:
        return Part(layer * self.width, (layer + 1) * self.width, self.width * self.layers)
