"""Llama whose tokens attend to those before and after them, as NVIDIA's embedders and rerankers.

Weights as Llama's, and `score` of a reranker.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import number
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class LlamaBidirectionalModel(Decoder):
    """One such embedder or reranker."""

    classifier_pooling = "mean"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        pooling = config.get("pooling", "avg")
        if pooling != "avg":
            raise ModelConfigError(f"pooling is {shown(pooling)}; known: avg")
        self.both_ways = True
        self._temperature = number(config, "temperature", 1.0, least=1e-6)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return ops.scale(super().classify(weights, rows, labels), 1 / self._temperature)
