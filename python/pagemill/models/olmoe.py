"""OLMoE: Llama with norms on q and k, all heads together, and experts.

Weights as Llama's, plus `self_attn.{q,k}_norm`; `mlp.gate` (the router) and
`mlp.experts.<i>.{gate,up,down}_proj`, or one stacked tensor for all experts.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, refuse
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import expert_count, read_routing


class OlmoeModel(Decoder):
    """One OLMoE model."""

    def __init__(self, config: Config) -> None:
        refuse(config, "clip_qkv")
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        qk_norm = QkNorm(self.sizes.norm_eps, whole=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
        count = expert_count(config, 64)
        renormalize = flag(config, "norm_topk_prob", False)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            read_routing(config, count, 8, renormalize=renormalize),
        )
