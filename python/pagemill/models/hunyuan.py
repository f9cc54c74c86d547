"""Hunyuan (dense): Llama with a norm on each head of rotated q and k.

Weights as Llama's, plus `self_attn.{query,key}_layernorm`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.decoder import QkNorm
from pagemill.models.base import Config
from pagemill.models.decoder import Decoder


class HunyuanModel(Decoder):
    """One dense Hunyuan model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        names = ("query_layernorm", "key_layernorm")
        qk_norm = QkNorm(self.sizes.norm_eps, names=names, rotated=True)
        self.attention_parts = replace(self.attention_parts, qk_norm=qk_norm)
