"""XGLM: sinusoidal positions, layer norms, GELU without gates, biases everywhere.

Weights: `model.layers.<i>.{self_attn_layer_norm, self_attn.{q,k,v,out}_proj, final_layer_norm, fc1,
fc2}`, `model.{embed_tokens, layer_norm}`, `lm_head` unless tied. Positions are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.models.base import IGNORED_IN_DECODERS, Config, StepInputs
from pagemill.models.config_keys import Renamed, activation, flag, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.waves import check_waves, waves
from pagemill.ops.trace import Tensor

_EPS = 1e-5  # not in the configuration
_FIRST_POSITION = 2  # of a table that fairseq counted from its padding token
_KEYS = {
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "attention_heads",
}


class XglmModel(Decoder):
    """One XGLM model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.embed_positions\.weights": "positions are computed",
    }
    names = DecoderNames(
        norm="model.layer_norm",
        attention_norm="self_attn_layer_norm",
        feed_forward_norm="final_layer_norm",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "add_cross_attention")
        config = Renamed(config, _KEYS)
        super().__init__(config, tied_by_default=True)
        hidden = self.sizes.hidden_size
        check_waves("d_model", hidden)
        self.layer_norms = True
        self.sizes = replace(self.sizes, norm_eps=_EPS)
        self.rotary = (None,) * self.sizes.layers
        if flag(config, "scale_embedding", True):
            self.embedding_scale = hidden**0.5
        self.attention_parts = AttentionParts(output="out_proj", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "activation_function", "gelu")

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = super().embed(weights, inputs)
        steps = x.width // 2 - 1
        return ops.add(x, waves(weights, x, inputs.positions, first=_FIRST_POSITION, steps=steps))

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        size, name = self.sizes.intermediate_size, self.prefix(layer)
        return mlp(weights, name, x, size, self.activation, self.mlp_parts)
