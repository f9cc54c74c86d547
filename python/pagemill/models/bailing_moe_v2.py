"""Ling and Ring 2.0 (`BailingMoeV2ForCausalLM`): Llama with rotary pairs on a part of each head,
norms on q and k, and DeepSeek V3's experts in all but the first layers.

Weights: `model.word_embeddings`, `model.layers.<i>.{input_layernorm,
attention.{query_key_value,query_layernorm,key_layernorm,dense}, post_attention_layernorm}`,
`model.norm`, `lm_head`; query_key_value has the rows of q, k and v; in layers with experts
`mlp.gate`, its `expert_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import flag, positive_int, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_grouped_experts, sparse_behind
from pagemill.weights.json_file import shown


class BailingMoeV2Model(Decoder):
    """One Ling or Ring 2.0 model."""

    names = DecoderNames(embedding="model.word_embeddings", attention="attention")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        refuse(config, "use_bias")
        scores = config.get("score_function", "sigmoid")
        if scores != "sigmoid":
            raise ModelConfigError(f"score_function is {shown(scores)}; known: sigmoid")
        qk_norm = None
        if flag(config, "use_qk_norm", True):
            qk_norm = QkNorm(self.sizes.norm_eps, names=("query_layernorm", "key_layernorm"))
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",),
            output="dense",
            bias=flag(config, "use_qkv_bias", False),
            qk_norm=qk_norm,
        )
        self.is_sparse = sparse_behind(config, self.sizes.layers)
        experts = read_grouped_experts(
            config,
            self.activation,
            count=16,
            size=self.sizes.intermediate_size,
            count_key="num_experts",
            shared_key="num_shared_experts",
            bias="gate.expert_bias",
        )
        size = positive_int(config, "moe_shared_expert_intermediate_size", experts.intermediate)
        shared = size * positive_int(config, "num_shared_experts", 1)
        self.experts = replace(experts, shared=shared)
