"""dots.llm1: Llama with norms on q and k, sliding windows on some layers, and DeepSeek V3's experts
in all but the first.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`, its
`e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.models.base import Config
from pagemill.models.config_keys import windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_behind


class Dots1Model(Decoder):
    """One dots.llm1 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = replace(self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = windows_by_type(config, self.sizes.layers)
        self.is_sparse = sparse_behind(config, self.sizes.layers)
        self.experts = read_grouped_experts(
            config,
            self.activation,
            count=128,
            size=1408,
            shared=2,
        )
