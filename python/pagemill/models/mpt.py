"""MPT: ALiBi in place of positions, layer norms without biases, GELU without gates.

Weights: `transformer.blocks.<i>.{norm_1, attn.{Wqkv,out_proj}, norm_2, ffn.{up_proj,down_proj}}`,
`transformer.{wte,norm_f}`; Wqkv has the rows of q, k and v; the head is tied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Renamed, flag, number, positive_int, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops import ActivationKind

_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_seq_len",
}


class MptModel(Decoder):
    """One MPT model."""

    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.blocks",
        norm="transformer.norm_f",
        attention_norm="norm_1",
        attention="attn",
        feed_forward_norm="norm_2",
        feed_forward="ffn",
    )

    def __init__(self, config: Config) -> None:
        attention: object = config.get("attn_config") or {}
        if not isinstance(attention, Mapping):
            raise ModelConfigError("the configuration needs attn_config to be an object")
        attention = cast("Mapping[str, Any]", attention)
        refuse(attention, "qk_ln", "prefix_lm", "attn_uses_sequence_id")
        refuse(config, "logit_scale")
        if not flag(attention, "alibi", True) or not flag(config, "no_bias", True):
            raise ModelConfigError("alibi and no_bias must be true in this family")
        if attention.get("attn_type", "multihead_attention") != "multihead_attention":
            raise ModelConfigError("attn_type must be multihead_attention in this family")
        super().__init__(
            Renamed(config, _KEYS),
            tied_by_default=True,
            eps=("layer_norm_epsilon", 1e-5),
            mlp_ratio=positive_int(config, "expansion_ratio", 4),
        )
        self.layer_norms = True
        self.norm_bias = False
        self.rotary = (None,) * self.sizes.layers
        if attention.get("softmax_scale") is not None:
            self.attention_scale = number(attention, "softmax_scale", 1.0)
        most = number(attention, "alibi_bias_max", 8, least=1, most=64)
        self.attention_parts = AttentionParts(
            qkv=("Wqkv",),
            output="out_proj",
            slopes=alibi_slopes(self.sizes.heads, most=most),
            limit=number(attention, "clip_qkv", 0.0, least=0.0),
        )
        self.mlp_parts = MlpParts(up=("up_proj",), gated=False)
        self.activation = ActivationKind.GELU
