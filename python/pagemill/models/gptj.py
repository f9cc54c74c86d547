"""GPT-J: both branches read one layer norm; interleaved rotary pairs on a part of each head.

Weights: `transformer.h.<i>.{ln_1, attn.{q_proj,k_proj,v_proj,out_proj}, mlp.{fc_in,fc_out}}`,
`transformer.{wte,ln_f}`, `lm_head`; norms, mlp and head have biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import GPT2_KEYS, Renamed, activation, rotary_dim
from pagemill.models.decoder import Decoder, DecoderNames


class GptJModel(Decoder):
    """One GPT-J model."""

    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn",
    )

    def __init__(self, config: Config) -> None:
        config = Renamed(config, GPT2_KEYS)
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(config, eps=eps, mlp_ratio=4, rotary_dim=rotary_dim(config, 64))
        self.layer_norms = True
        self.interleaved = True
        self.parallel = True
        self.attention_parts = AttentionParts(output="out_proj")
        self.mlp_parts = MlpParts(up=("fc_in",), down="fc_out", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu_new")
        self.head_bias = True
