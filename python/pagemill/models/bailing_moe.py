"""Ling (`BailingMoeForCausalLM`): Llama with q, k and v in one matrix, and DeepSeekMoE's experts in
all but the first layers.

Weights: `model.word_embeddings`, `model.layers.<i>.{input_layernorm,
attention.{query_key_value,dense}, post_attention_layernorm}`, `model.norm`, `lm_head`;
query_key_value has the rows of q, k and v; in layers with experts `mlp.gate`, `mlp.experts.<i>` and
`mlp.shared_experts`.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_softmax_experts, sparse_behind


class BailingMoeModel(Decoder):
    """One Ling model."""

    names = DecoderNames(embedding="model.word_embeddings", attention="attention")

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        refuse(config, "use_bias", "norm_head", "multi_gate")
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",), output="dense", bias=flag(config, "use_qkv_bias", False)
        )
        self.is_sparse = sparse_behind(config, self.sizes.layers)
        self.experts = read_softmax_experts(
            config,
            self.activation,
            count=16,
            size=self.sizes.intermediate_size,
            choices=2,
            renormalize=True,
            count_key="num_experts",
            shared_key="num_shared_experts",
        )
