"""ChatGLM 2 and 3 and GLM-4 as it was first saved: GLM-4 under other names.

Weights: `transformer.encoder.layers.<i>.{input_layernorm, self_attention.{query_key_value,dense},
post_attention_layernorm, mlp.{dense_h_to_4h,dense_4h_to_h}}`, `transformer.output_layer`,
`transformer.embedding.word_embeddings`, `transformer.encoder.final_layernorm`; query_key_value has
the rows of q, k and v, dense_h_to_4h those of gate and up.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import Defaults, Renamed, flag, number, refuse
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {
    "vocab_size": "padded_vocab_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "num_key_value_heads": "multi_query_group_num",
    "head_dim": "kv_channels",
    "max_position_embeddings": "seq_length",
}


class ChatGlmModel(Decoder):
    """One ChatGLM model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"transformer\.output_layer\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
        r"transformer\.rotary_pos_emb\.inv_freq": "frequencies follow from the configuration",
    }
    names = DecoderNames(
        embedding="transformer.embedding.word_embeddings",
        layers="transformer.encoder.layers",
        norm="transformer.encoder.final_layernorm",
        head="transformer.output_layer",
        attention="self_attention",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "add_bias_linear", "apply_residual_connection_post_layernorm")
        for key in ("rmsnorm", "multi_query_attention"):
            if not flag(config, key, True):
                raise ModelConfigError(f"{key} must be true in this family")
        theta = 1e4 * number(config, "rope_ratio", 1.0, least=1e-3)
        rope = {"rope_theta": theta, "partial_rotary_factor": 0.5}
        super().__init__(Defaults(Renamed(config, _KEYS), rope), eps=("layernorm_epsilon", 1e-5))
        self.interleaved = True
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",), output="dense", bias=flag(config, "add_qkv_bias", True)
        )
        self.mlp_parts = MlpParts(up=("dense_h_to_4h",), down="dense_4h_to_h")
