"""Falcon: layer norms, GELU without gates, one head of keys and values or few, and branches that
read one norm, norms of their own, or follow each other; or ALiBi in place of rotary positions.

Weights: `transformer.h.<i>.{input_layernorm, self_attention.{query_key_value,dense},
mlp.{dense_h_to_4h,dense_4h_to_h}}`, `transformer.{word_embeddings,ln_f}`; also
`post_attention_layernorm` if branches follow each other, and `ln_attn` and `ln_mlp` for
`input_layernorm` if they have norms of their own. query_key_value has the rows of all queries, of
the key and of the value, or these rows for each KV head.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Defaults, Renamed, activation, flag, positive_int
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {
    "intermediate_size": "ffn_hidden_size",
    "num_key_value_heads": "num_kv_heads",
    "hidden_act": "activation",
}
# Keys of the first checkpoints.
_FIRST_KEYS = {
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "num_kv_heads": "n_head_kv",
}
_DEFAULTS = {"max_position_embeddings": 2048}
_NAMES = DecoderNames(
    embedding="transformer.word_embeddings",
    layers="transformer.h",
    norm="transformer.ln_f",
    attention="self_attention",
)


class FalconModel(Decoder):
    """One Falcon model."""

    names = _NAMES

    def __init__(self, config: Config) -> None:
        if "n_head" in config:
            grouped = config.get("model_type") == "RefinedWeb"
            config = Defaults(Renamed(config, _FIRST_KEYS), {"new_decoder_architecture": grouped})
        config = Renamed(config, _KEYS, _DEFAULTS)
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(config, tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        grouped = flag(config, "new_decoder_architecture", False)
        by_head = grouped or not flag(config, "multi_query", True)
        if not grouped:
            heads = self.sizes.heads if by_head else 1
            self.sizes = replace(self.sizes, kv_heads=heads)
        if flag(config, "parallel_attn", True):
            norms = positive_int(config, "num_ln_in_parallel_attn", 2 if grouped else 1)
            if norms > (2 if grouped else 1):
                raise ModelConfigError(
                    "num_ln_in_parallel_attn must be 1, or 2 with new_decoder_architecture"
                )
            self.parallel_norms = norms == 2
            self.parallel = not self.parallel_norms
        elif grouped:
            raise ModelConfigError("parallel_attn must be true with new_decoder_architecture")
        if self.parallel_norms:
            self.names = replace(_NAMES, attention_norm="ln_attn", feed_forward_norm="ln_mlp")
        bias = flag(config, "bias", False)
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",),
            by_head=by_head and flag(config, "qkv_by_head", True),
            output="dense",
            bias=bias,
            output_bias=bias,
        )
        if flag(config, "alibi", False):
            self.rotary = (None,) * self.sizes.layers
            # Slopes are added to scores before these are divided.
            scale = self.sizes.head_dim**-0.5
            slopes = tuple(slope * scale for slope in alibi_slopes(self.sizes.heads))
            self.attention_parts = replace(self.attention_parts, slopes=slopes)
        self.mlp_parts = MlpParts(
            up=("dense_h_to_4h",), down="dense_4h_to_h", gated=False, bias=bias
        )
        self.activation = activation(config, "hidden_act", "gelu")
