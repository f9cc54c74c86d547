"""TeleChat and TeleChat2: Llama under BLOOM's names, with biases of the last layer of each branch.

Weights: `transformer.h.<i>.{input_layernorm, self_attention.{query,key_value,dense},
post_attention_layernorm, mlp.{gate,up,down}_proj}`, `transformer.{word_embeddings,ln_f}`,
`lm_head`; key_value has, for each KV head, the rows of its key and of its value. Contexts beyond
the longest in training, for which the models change their frequencies, are not supported.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed, refuse
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "ffn_hidden_size",
    "max_position_embeddings": "training_seqlen",
}


class TeleChat2Model(Decoder):
    """One TeleChat model."""

    names = DecoderNames(
        embedding="transformer.word_embeddings",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention="self_attention",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "apply_residual_connection_post_layernorm", "embed_layernorm")
        super().__init__(Renamed(config, _KEYS), eps=("layer_norm_epsilon", 1e-5))
        self.attention_parts = AttentionParts(
            qkv=("query", "key_value"), output="dense", output_bias=True
        )
        self.mlp_parts = MlpParts(down_bias=True)
