"""GLM-4.5 and 4.6 (`Glm4MoeForCausalLM`): Llama with rotary pairs on half of each head, norms on q
and k, and DeepSeek V3's experts in all but the first layers.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`, its
`e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import moe
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts
from pagemill.models.mtp_layer import DEEPSEEK_MTP
from pagemill.ops.trace import Tensor


class Glm4MoeModel(Decoder):
    """One GLM-4 model with experts."""

    mtp = DEEPSEEK_MTP

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(self.attention_parts, output_bias=False)
        if flag(config, "use_qk_norm", False):
            qk_norm = QkNorm(self.sizes.norm_eps)
            self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        self._dense_layers = number(config, "first_k_dense_replace", 1, least=0)
        self._experts = read_grouped_experts(
            config,
            self.activation,
            count=128,
            size=1408,
        )

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        if layer < self._dense_layers:
            return super().feed_forward(weights, layer, x)
        return moe(weights, f"{self.prefix(layer)}.mlp", x, self._experts)
