"""GLM-4.5 and 4.6 (`Glm4MoeForCausalLM`): Llama with rotary pairs on half of each head, norms on q
and k, and DeepSeek V3's experts in all but the first layers.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`, its
`e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_behind
from pagemill.models.mtp_layer import DEEPSEEK_MTP


class Glm4MoeModel(Decoder):
    """One GLM-4 model with experts."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(self.attention_parts, output_bias=False)
        if flag(config, "use_qk_norm", False):
            qk_norm = QkNorm(self.sizes.norm_eps)
            self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self.is_sparse = sparse_behind(config, self.sizes.layers, dense=1)
        self.experts = read_grouped_experts(
            config,
            self.activation,
            count=128,
            size=1408,
        )
