"""Megatron-BERT: BERT with norms in front of the branches, and none of embeddings."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead
from pagemill.ops.trace import Tensor


class MegatronBertModel(Encoder):
    """One Megatron-BERT encoder."""

    base_prefix = "bert."
    names = EncoderNames(
        norm=None,
        last_norm="encoder.ln",
        attended_norm="attention.ln",
        down_norm="ln",
    )
    masked = MaskedHead(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    )

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
