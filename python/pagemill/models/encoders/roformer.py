"""RoFormer: BERT with rotary positions, whose pairs are neighbours."""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import make_rotary_table, positive_int, refuse
from pagemill.models.encoders.encoder import Encoder, MaskedHead
from pagemill.ops.trace import Tensor


class RoFormerModel(Encoder):
    """One RoFormer encoder."""

    base_prefix = "roformer."
    masked = MaskedHead(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    )
    ignored = {
        **Encoder.ignored,
        r".*\.embed_positions\.weight": "angles are computed from the configuration",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        refuse(config, "rotary_value")
        self._embedding_size = positive_int(config, "embedding_size", self.sizes.hidden_size)
        self.masked_width = self._embedding_size
        self.rotary = (make_rotary_table(config, self.sizes.head_dim),) * self.sizes.layers
        self.interleaved = True

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        if self._embedding_size == self.sizes.hidden_size:
            return super().embed(weights, inputs)
        return self.embed_narrow(weights, inputs, self._embedding_size, "embeddings_project")

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return self.classify_by(weights, rows, labels, self.activation)
