"""ELECTRA's discriminator: BERT whose embeddings may be narrower than its layers."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import positive_int
from pagemill.models.encoders.encoder import Encoder
from pagemill.ops.trace import Tensor


class ElectraModel(Encoder):
    """One ELECTRA encoder."""

    base_prefix = "electra."

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._embedding_size = positive_int(config, "embedding_size", self.sizes.hidden_size)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        if self._embedding_size == self.sizes.hidden_size:
            return super().embed(weights, inputs)
        return self.embed_narrow(weights, inputs, self._embedding_size, "embeddings_project")

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return self.classify_by(weights, rows, labels, ops.ActivationKind.GELU)
