"""GTE (and Snowflake's embeddings): BERT with rotary positions and gates; also as first saved,
under the name `NewModel`."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, make_rotary_table, refuse
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


class GteModel(Encoder):
    """One GTE encoder."""

    base_prefix = "gte."
    names = EncoderNames(
        qkv=("attention.qkv_proj",),
        attended="attention.o_proj",
        attended_norm="attn_ln",
        down_norm="mlp_ln",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config, positions="rope")
        names = as_list(config.get("architectures")) or []
        if any("New" in str(name) for name in names):
            self.base_prefix = "new."
        refuse(config, "logn_attention_scale")
        for key, known in (("layer_norm_type", "layer_norm"), ("pack_qkv", True)):
            if config.get(key, known) != known:
                raise ModelConfigError(f"{key} is {shown(config[key])}; known: {known}")
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        parts = MlpParts(("up_gate_proj",), "down_proj", gate_last=True, down_bias=True)
        name, size = f"{self.prefix(layer)}.mlp", self.sizes.intermediate_size
        return mlp(weights, name, x, size, self.activation, parts)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
