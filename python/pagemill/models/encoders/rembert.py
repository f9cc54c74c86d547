"""RemBERT: BERT whose embeddings are narrower than its layers."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import positive_int
from pagemill.models.encoders.encoder import Encoder
from pagemill.ops.trace import Tensor


class RemBertModel(Encoder):
    """One RemBERT encoder."""

    base_prefix = "rembert."

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._embedding_size = positive_int(config, "input_embedding_size", 256)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        name = "encoder.embedding_hidden_mapping_in"
        return self.embed_narrow(weights, inputs, self._embedding_size, name)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
