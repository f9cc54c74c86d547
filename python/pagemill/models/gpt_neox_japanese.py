"""GPT-NeoX Japanese: GPT-NeoX whose branches follow each other, without biases but those of norms
and of the last attention.

Weights: `gpt_neox_japanese.layers.<i>.{input_layernorm, attention.{query_key_value,dense},
post_attention_layernorm, mlp.{dense_h_to_4h,dense_4h_to_h}}`, `gpt_neox_japanese.{embed_in,
final_layer_norm}`, `embed_out` unless tied; query_key_value has for each head the rows of q, k and
v. The bias of the last layer's `attention.dense` is published as `attention.dense_bias`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts, rotary_attention
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import Renamed, activation, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor


class GptNeoxJapaneseModel(Decoder):
    """One GPT-NeoX Japanese model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"embed_out\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
    }
    names = DecoderNames(
        embedding="gpt_neox_japanese.embed_in",
        layers="gpt_neox_japanese.layers",
        norm="gpt_neox_japanese.final_layer_norm",
        head="embed_out",
        attention="attention",
    )

    def __init__(self, config: Config) -> None:
        # Older configurations have another name for the rotary base.
        keys = {"rope_theta": "rotary_emb_base"} if "rotary_emb_base" in config else {}
        super().__init__(
            Renamed(config, keys),
            tied_by_default=True,
            eps=("layer_norm_eps", 1e-5),
            mlp_ratio=positive_int(config, "intermediate_multiple_size", 4),
        )
        self.layer_norms = True
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",), by_head=True, output="dense"
        )
        self.mlp_parts = MlpParts(up=("dense_h_to_4h",), down="dense_4h_to_h", gated=False)
        self.activation = activation(config, "hidden_act", "gelu")

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        name, cache = f"{self.prefix(layer)}.{self.names.attention}", f"kv{layer}"
        is_last = layer == self.sizes.layers - 1
        parts = replace(self.attention_parts, output_bias=is_last)
        return rotary_attention(weights, name, x, self.sizes.attention(), rotary, cache, parts)
