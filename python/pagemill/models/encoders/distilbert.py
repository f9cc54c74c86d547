"""DistilBERT: BERT without token types, under other names."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed
from pagemill.models.encoders.encoder import Encoder, EncoderNames, MaskedHead
from pagemill.ops.trace import Tensor

_KEYS = {
    "hidden_size": "dim",
    "intermediate_size": "hidden_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
}


class DistilBertModel(Encoder):
    """One DistilBERT encoder."""

    base_prefix = "distilbert."
    names = EncoderNames(
        layers="transformer.layer",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        attended="attention.out_lin",
        attended_norm="sa_layer_norm",
        up=("ffn.lin1",),
        down="ffn.lin2",
        down_norm="output_layer_norm",
    )
    masked = MaskedHead(
        "vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"
    )

    def __init__(self, config: Config) -> None:
        super().__init__(Renamed(config, _KEYS))
        self.typed = False

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = ("pre_classifier", "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.RELU, names)
