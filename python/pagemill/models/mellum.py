"""Mellum 2: Qwen3-MoE with rotary tables that differ between sliding and full layers.

Weights as Qwen3-MoE's; `mtp` is that of a draft head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.layers.moe import Experts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    flag,
    layer_count,
    positive_int,
    windows_by_type,
)
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing, sparse_layers
from pagemill.models.mtp_layer import MELLUM_MTP


class MellumModel(Decoder):
    """One Mellum 2 model."""

    mtp = MELLUM_MTP
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"mtp\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        windows = windows_by_type(config, layer_count(config))
        super().__init__(config, layer_types=[SLIDING if window else FULL for window in windows])
        self.windows = windows
        self.attention_parts = replace(self.attention_parts, qk_norm=QkNorm(self.sizes.norm_eps))
        self.is_sparse = sparse_layers(config, self.sizes.layers)
        count = positive_int(config, "num_local_experts", 64)
        self.experts = Experts(
            count,
            positive_int(config, "moe_intermediate_size", 896),
            self.activation,
            read_routing(config, count, 8, renormalize=flag(config, "norm_topk_prob", True)),
        )
