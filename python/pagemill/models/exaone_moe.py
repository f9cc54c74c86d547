"""K-EXAONE (`ExaoneMoeForCausalLM`): Llama with norms on each head of q and k, sliding windows,
full layers without positions, and DeepSeek V3's experts.

Weights as Llama's, plus `self_attn.{q,k}_norm`; in layers with experts `mlp.gate`,
`mlp.e_score_correction_bias`, `mlp.experts.<i>` and `mlp.shared_experts`; `mtp` is that of a draft
head.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.mtp_layer import EXAONE_MTP


class ExaoneMoeModel(Decoder):
    """One K-EXAONE model."""

    mtp = EXAONE_MTP
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"mtp\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = AttentionParts(qk_norm=QkNorm(self.sizes.norm_eps))
        self.windows = windows_by_type(config, self.sizes.layers, pattern=4)
        self.rotary = self.rotary_in_windows()
        self.is_sparse = sparse_layers(config, self.sizes.layers, dense=1)
        self.experts = read_grouped_experts(
            config,
            self.activation,
            count=64,
            size=1024,
            count_key="num_experts",
            shared_key="num_shared_experts",
            bias="e_score_correction_bias",
        )
