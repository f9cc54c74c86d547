"""Phi-3 and Phi-4: Llama with q, k and v in one matrix, and gate and up in another.

Weights as Llama's, with `self_attn.qkv_proj` and `mlp.gate_up_proj`.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import window_or_full
from pagemill.models.decoder import Decoder


class Phi3Model(Decoder):
    """One Phi-3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.attention_parts = AttentionParts(qkv=("qkv_proj",))
        self.mlp_parts = MlpParts(up=("gate_up_proj",))
        self.windows = (window_or_full(config),) * self.sizes.layers
