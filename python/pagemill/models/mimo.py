"""MiMo: Qwen2, with MTP layers.

Weights as Qwen2's; `model.mtp_layers` are those of a draft head.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.mtp_layer import MIMO_MTP


class MiMoModel(Decoder):
    """One MiMo model."""

    mtp = MIMO_MTP
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.mtp_layers\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.attention_parts = AttentionParts(bias=flag(config, "attention_bias", True))
