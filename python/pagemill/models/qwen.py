"""Qwen, the first: Llama under GPT-2's names, with biases on q, k and v.

Weights: `transformer.h.<i>.{ln_1, attn.{c_attn,c_proj}, ln_2, mlp.{w1,w2,c_proj}}`, of which w2 is
the gate, `transformer.{wte,ln_f}`, `lm_head`; c_attn has the rows of q, k and v. The configuration
states twice the intermediate size. Contexts beyond `seq_length`, for which the models change their
frequencies and scores, are not supported.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Renamed, flag
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {
    "head_dim": "kv_channels",
    "max_position_embeddings": "seq_length",
    "rope_theta": "rotary_emb_base",
}


class QwenModel(Decoder):
    """One Qwen model."""

    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        if not flag(config, "no_bias", True):
            raise ModelConfigError("no_bias must be true in this family")
        super().__init__(Renamed(config, _KEYS), eps=("layer_norm_epsilon", 1e-6))
        size, rest = divmod(self.sizes.intermediate_size, 2)
        if rest:
            raise ModelConfigError("intermediate_size, that of gate and up together, must be even")
        self.sizes = replace(self.sizes, intermediate_size=size)
        self.attention_parts = AttentionParts(qkv=("c_attn",), output="c_proj", bias=True)
        self.mlp_parts = MlpParts(up=("w2", "w1"), down="c_proj")
