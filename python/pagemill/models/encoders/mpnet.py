"""MPNet: BERT whose attention adds a bias for the distance of a key, the same in all layers."""

from __future__ import annotations

from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import positive_int
from pagemill.models.encoders.distance_buckets import distance_biases
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.ops.trace import Tensor

# Not in the configuration.
_FIRST_POSITION = 2
_REACH = 128
_BUCKETS = 32


class MpNetModel(Encoder):
    """One MPNet encoder."""

    base_prefix = "mpnet."
    names = EncoderNames(
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        attended="attention.attn.o",
        attended_norm="attention.LayerNorm",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if positive_int(config, "relative_attention_num_buckets", _BUCKETS) != _BUCKETS:
            raise ModelConfigError(f"relative_attention_num_buckets must be {_BUCKETS} in MPNet")
        self.typed = False
        self.first_position = _FIRST_POSITION

    def distance_biases(self, weights: Weights, layer: int, shape: AttentionShape) -> Tensor:
        del layer
        name = self.name("encoder.relative_attention_bias.weight")
        return distance_biases(weights, name, shape, _BUCKETS, _REACH)
