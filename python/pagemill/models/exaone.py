"""EXAONE 3 and 3.5: Llama under other names.

Weights: `transformer.h.<i>.{ln_1, attn.attention.{q,k,v,out}_proj, ln_2,
mlp.{c_fc_0,c_fc_1,c_proj}}` (gate, up, down), `transformer.{wte,ln_f}`, `lm_head` unless tied.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {"num_hidden_layers": "num_layers", "hidden_act": "activation_function"}


class ExaoneModel(Decoder):
    """One EXAONE 3 model."""

    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn.attention",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(Renamed(config, _KEYS), eps=("layer_norm_epsilon", 1e-5))
        self.attention_parts = AttentionParts(output="out_proj")
        self.mlp_parts = MlpParts(up=("c_fc_0", "c_fc_1"), down="c_proj")
