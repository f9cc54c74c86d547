"""Encoders of T5, mT5, UMT5 and LongT5: norms in front of the branches, biases by distance in place
of positions, and scores that are not scaled.

The first layer has the biases of all; in UMT5 each has its own. Weights: `shared`,
`encoder.block.<i>.layer.0.{layer_norm, SelfAttention.{q,k,v,o,relative_attention_bias}}`, in LongT5
`LocalSelfAttention`, `encoder.block.<i>.layer.1.{layer_norm, DenseReluDense.{wi,wo}}`, or `wi_0`
and `wi_1` with gates, `encoder.final_layer_norm`.
"""

from __future__ import annotations

from pagemill.layers import embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import Renamed, activation, positive_int
from pagemill.models.encoders.distance_buckets import distance_biases
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_KEYS = {
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "n_positions",
}
# Nothing limits the positions; models were trained on so many.
_DEFAULTS = {"max_position_embeddings": 512}


def _names(attention: str) -> EncoderNames:
    """Those of an encoder whose attention has this name."""
    return EncoderNames(
        words="shared",
        last_norm="encoder.final_layer_norm",
        layers="encoder.block",
        qkv=tuple(f"layer.0.{attention}.{which}" for which in "qkv"),
        attended=f"layer.0.{attention}.o",
        attended_norm="layer.0.layer_norm",
        down="layer.1.DenseReluDense.wo",
        down_norm="layer.1.layer_norm",
    )


class T5Model(Encoder):
    """The encoder of one T5 model. `buckets` of distances reach up to the distance `reach`."""

    base_prefix = ""
    attention_name = "SelfAttention"
    names = _names(attention_name)
    ignored = {
        r"decoder\..*": "only the encoder is run",
        r"lm_head\..*": "the decoder's head",
        r"encoder\.embed_tokens\.weight": "the shared embedding",
    }

    def __init__(self, config: Config) -> None:
        kind = config.get("feed_forward_proj") or "relu"
        gated = isinstance(kind, str) and kind.startswith("gated-")
        head_dim = positive_int(config, "d_kv", 64)
        renamed = Renamed(config, _KEYS, _DEFAULTS)
        super().__init__(renamed, eps="layer_norm_epsilon", head_dim=head_dim)
        self.typed = False
        self.gated = gated
        self.bias = False
        self.attention_scale = 1.0
        name = kind.removeprefix("gated-") if isinstance(kind, str) else kind
        # In T5 1.1 the tanh approximation.
        name = "gelu_new" if gated and name == "gelu" else name
        self.activation = activation({"feed_forward_proj": name}, "feed_forward_proj", "relu")
        self.buckets = positive_int(config, "relative_attention_num_buckets", 32)
        self.reach = positive_int(config, "relative_attention_max_distance", 128)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self.sizes.vocab_size, self.sizes.hidden_size)
        return embedding.embedding(weights, self.names.words, inputs.token_ids, table)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.rms_norm(weights, name, x, self.sizes.norm_eps)

    def distance_biases(self, weights: Weights, layer: int, shape: AttentionShape) -> Tensor:
        bias = f"layer.0.{self.attention_name}.relative_attention_bias.weight"
        name = f"{self.prefix(layer)}.{bias}"
        if not weights.has(name):
            name = f"{self.prefix(0)}.{bias}"
        return distance_biases(weights, name, shape, self.buckets, self.reach)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        up = ("wi_0", "wi_1") if self.gated else ("wi",)
        name = f"{self.prefix(layer)}.layer.1.DenseReluDense"
        parts = MlpParts(up=up, down="wo", gated=self.gated)
        return mlp(weights, name, x, self.sizes.intermediate_size, self.activation, parts)


class LongT5Model(T5Model):
    """The encoder of one LongT5 model whose tokens attend to those at most `local_radius` away."""

    attention_name = "LocalSelfAttention"
    names = _names(attention_name)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        kind = config.get("encoder_attention_type", "local")
        if kind != "local":
            raise ModelConfigError(
                f"encoder_attention_type is {shown(kind)}; only local is supported"
            )
        window = positive_int(config, "local_radius", 127) + 1
        self.windows = (window,) * self.sizes.layers
