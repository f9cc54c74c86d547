"""BioGPT: learned positions, layer norms, GELU without gates, biases everywhere.

Weights: `biogpt.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v,out}_proj, final_layer_norm,
fc1, fc2}`, `biogpt.{embed_tokens, embed_positions, layer_norm}`, `output_projection` unless tied.
Rows of embed_positions begin at position -2.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import IGNORED_IN_DECODERS, Config, StepInputs
from pagemill.models.config_keys import activation, flag
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration
_FIRST_POSITION = 2  # row of embed_positions


class BioGptModel(Decoder):
    """One BioGPT model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"output_projection\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
    }
    names = DecoderNames(
        embedding="biogpt.embed_tokens",
        layers="biogpt.layers",
        norm="biogpt.layer_norm",
        head="output_projection",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)
        self.rotary = (None,) * self.sizes.layers
        if flag(config, "scale_embedding", True):
            self.embedding_scale = self.sizes.hidden_size**0.5
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return embedding.add_positions(
            weights,
            "biogpt.embed_positions",
            super().embed(weights, inputs),
            inputs.positions,
            self.sizes.max_positions,
            first=_FIRST_POSITION,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, _EPS)
