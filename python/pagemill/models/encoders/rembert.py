"""RemBERT: BERT whose embeddings are narrower than its layers, and whose head of a masked language
model has a matrix of words of its own, as wide as `output_embedding_size` says."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import positive_int
from pagemill.models.encoders.encoder import Encoder, MaskedHead
from pagemill.ops.trace import Tensor


class RemBertModel(Encoder):
    """One RemBERT encoder."""

    base_prefix = "rembert."
    masked = MaskedHead(
        "cls.predictions.dense",
        "cls.predictions.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.decoder.bias",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._embedding_size = positive_int(config, "input_embedding_size", 256)
        self.masked_width = positive_int(config, "output_embedding_size", 1664)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        name = "encoder.embedding_hidden_mapping_in"
        return self.embed_narrow(weights, inputs, self._embedding_size, name)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
