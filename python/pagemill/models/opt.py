"""OPT: learned positions, layer norms, ReLU, biases everywhere.

Weights: `model.decoder.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v}_proj,
self_attn.out_proj, final_layer_norm, fc1, fc2}`, `model.decoder.{embed_tokens, embed_positions,
final_layer_norm}`; the head is tied. Rows of embed_positions begin at position -2.
"""

from __future__ import annotations

from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import Renamed, activation, flag, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_FIRST_POSITION = 2  # row of embed_positions


class OptModel(Decoder):
    """One OPT model."""

    names = DecoderNames(
        embedding="model.decoder.embed_tokens",
        layers="model.decoder.layers",
        norm="model.decoder.final_layer_norm",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        config = Renamed(config, {"intermediate_size": "ffn_dim"})
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        if not flag(config, "do_layer_norm_before", True):
            raise ModelConfigError("do_layer_norm_before must be true in this family")
        if positive_int(config, "word_embed_proj_dim", self.sizes.hidden_size) != (
            self.sizes.hidden_size
        ):
            raise ModelConfigError("word_embed_proj_dim must be the hidden_size in this family")
        self.rotary = (None,) * self.sizes.layers
        bias = flag(config, "enable_bias", True)
        self.attention_parts = AttentionParts(output="out_proj", bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=bias)
        self.activation = activation(config, "activation_function", "relu")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return embedding.add_positions(
            weights,
            "model.decoder.embed_positions",
            super().embed(weights, inputs),
            inputs.positions,
            self.sizes.max_positions,
            first=_FIRST_POSITION,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps)
