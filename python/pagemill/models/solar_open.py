"""Solar Open: Llama with DeepSeek V3's experts in every layer.

Weights as Llama's; `mlp.gate`, its `e_score_correction_bias`, `mlp.experts.<i>` and
`mlp.shared_experts`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.models.base import Config
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts


class SolarOpenModel(Decoder):
    """One Solar Open model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = replace(self.attention_parts, output_bias=False)
        self.experts = read_grouped_experts(
            config,
            self.activation,
            count=128,
            size=1280,
        )
