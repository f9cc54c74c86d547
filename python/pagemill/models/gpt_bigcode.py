"""GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one head of keys and values.

Weights: `transformer.h.<i>.{ln_1, attn.{c_attn,c_proj}, ln_2, mlp.{c_fc,c_proj}}`,
`transformer.{wte,wpe,ln_f}`; all but the tables have biases. c_attn has the rows of q, k and v.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import GPT2_KEYS, Renamed, activation, flag
from pagemill.models.decoder import Decoder, DecoderNames


class GptBigCodeModel(Decoder):
    """One GPT-BigCode model."""

    names = DecoderNames(
        embedding="transformer.wte",
        positions="transformer.wpe",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        if not flag(config, "multi_query", True):
            raise ModelConfigError("multi_query must be true in this family")
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(Renamed(config, GPT2_KEYS), tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.sizes = replace(self.sizes, kv_heads=1)
        self.rotary = (None,) * self.sizes.layers
        if not flag(config, "scale_attn_weights", True):
            self.attention_scale = 1.0
        self.attention_parts = AttentionParts(
            qkv=("c_attn",), output="c_proj", bias=True, output_bias=True
        )
        self.mlp_parts = MlpParts(up=("c_fc",), down="c_proj", gated=False, bias=True)
        self.activation = activation(config, "activation_function", "gelu_pytorch_tanh")
