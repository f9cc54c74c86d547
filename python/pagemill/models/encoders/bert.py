"""BERT: a bidirectional encoder whose vectors are pooled.

Weights: `embeddings.{word,position,token_type}_embeddings`, `embeddings.LayerNorm`,
`encoder.layer.<i>.attention.{self.{query,key,value}, output.{dense,LayerNorm}}`,
`encoder.layer.<i>.{intermediate.dense, output.{dense,LayerNorm}}`; `pooler.dense`, `classifier`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import activation
from pagemill.models.encoders.encoder import Encoder, MaskedHead
from pagemill.ops.trace import Tensor


class BertModel(Encoder):
    """One BERT encoder."""

    base_prefix = "bert."
    masked = MaskedHead(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Another than BERT's own is that of GGUF files of DistilBERT.
        self._head_activation = activation(config, "classifier_activation", "tanh")

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, self._head_activation, names)
