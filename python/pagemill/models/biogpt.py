"""BioGPT: learned positions, layer norms, GELU without gates, biases everywhere.

Weights: `biogpt.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v,out}_proj, final_layer_norm,
fc1, fc2}`, `biogpt.{embed_tokens, embed_positions, layer_norm}`, `output_projection` unless tied.
Rows of embed_positions begin at position -2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import activation, flag
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration


class BioGptModel(Decoder):
    """One BioGPT model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"output_projection\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
    }
    names = DecoderNames(
        embedding="biogpt.embed_tokens",
        positions="biogpt.embed_positions",
        layers="biogpt.layers",
        norm="biogpt.layer_norm",
        head="output_projection",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)
        self.layer_norms = True
        self.sizes = replace(self.sizes, norm_eps=_EPS)
        self.first_position = 2  # row of embed_positions
        self.rotary = (None,) * self.sizes.layers
        if flag(config, "scale_embedding", True):
            self.embedding_scale = self.sizes.hidden_size**0.5
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu")

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)
