"""GTE (and Snowflake's embeddings): BERT with rotary positions and gates; also as first saved,
under the name `NewModel`."""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear, row_parallel
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, make_rotary_table, refuse
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.shard import Part
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
        if any(str(name).startswith("New") for name in names):
            self.base_prefix = "new."
        refuse(config, "logn_attention_scale")
        for key, known in (("layer_norm_type", "layer_norm"), ("pack_qkv", True)):
            if config.get(key, known) != known:
                raise ModelConfigError(f"{key} is {shown(config[key])}; known: {known}")
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name, size = f"{self.prefix(layer)}.mlp", self.sizes.intermediate_size
        part = weights.shard.part(size, weights.block_elements(f"{name}.down_proj.weight"))

        def project(first: int) -> Tensor:
            rows = Part(first + part.begin, first + part.end, 2 * size)
            return linear(weights, f"{name}.up_gate_proj", x, (part.size,), rows=rows)

        # Rows of gates lie behind those of what they open.
        y = ops.gated_activation(project(size), project(0), self.activation)
        return row_parallel(weights, f"{name}.down_proj", y, x.width, columns=part, bias=True)

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)
