"""ALBERT: BERT whose layers share weights, in groups, and whose embeddings are narrower."""

from __future__ import annotations

from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import layer_loops, positive_int
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead
from pagemill.ops.trace import Tensor


class AlbertModel(Encoder):
    """One ALBERT encoder."""

    base_prefix = "albert."
    names = EncoderNames(
        layers="encoder.albert_layer_groups",
        qkv=("attention.query", "attention.key", "attention.value"),
        attended="attention.dense",
        attended_norm="attention.LayerNorm",
        up=("ffn",),
        down="ffn_output",
        down_norm="full_layer_layer_norm",
    )
    masked = MaskedHead(
        "predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"
    )
    ignored = {
        **Encoder.ignored,
        r"(predictions|sop_classifier)\..*": "heads of the training objectives",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._embedding_size = positive_int(config, "embedding_size", 128)
        self.masked_width = self._embedding_size
        self._groups = positive_int(config, "num_hidden_groups", 1)
        self._calls = self.sizes.layers  # of groups
        self._inner = layer_loops(config, "inner_group_num", 1, self._calls)
        self.sizes = replace(self.sizes, layers=self._calls * self._inner)
        self.windows = (0,) * self.sizes.layers

    def prefix(self, layer: int) -> str:
        call, inner = divmod(layer, self._inner)
        group = call * self._groups // self._calls
        return self.name(f"{self.names.layers}.{group}.albert_layers.{inner}")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        name = "encoder.embedding_hidden_mapping_in"
        return self.embed_narrow(weights, inputs, self._embedding_size, name)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
