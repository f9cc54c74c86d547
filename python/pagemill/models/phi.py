"""Phi-1 and Phi-2: both branches read one layer norm; biases everywhere, rotary pairs on a part of
each head, no gates.

Weights: `model.layers.<i>.{input_layernorm, self_attn.{q,k,v}_proj, self_attn.dense,
mlp.{fc1,fc2}}`, `model.{embed_tokens,final_layernorm}`, `lm_head`; all but the embedding have
biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import activation, refuse
from pagemill.models.decoder import Decoder, DecoderNames


class PhiModel(Decoder):
    """One Phi model."""

    names = DecoderNames(norm="model.final_layernorm")

    def __init__(self, config: Config) -> None:
        refuse(config, "qk_layernorm")
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.parallel = True
        self.attention_parts = AttentionParts(output="dense", bias=True, output_bias=True)
        self.mlp_parts = MlpParts(up=("fc1",), down="fc2", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu_new")
        self.head_bias = True
