"""Youtu-LLM: Llama with DeepSeek V3's latent attention.

Weights as Llama's, with DeepSeek-V3's in `self_attn`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.latent import latent_attention
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder
from pagemill.models.latent_keys import read_latent
from pagemill.ops.trace import Tensor


class YoutuModel(Decoder):
    """One Youtu-LLM model."""

    def __init__(self, config: Config) -> None:
        self._latent = read_latent(config)
        super().__init__(config, tied_by_default=True, rotary_dim=self._latent.rope)
        self.interleaved = flag(config, "rope_interleave", True)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name = f"{self.prefix(layer)}.self_attn"
        bias = self.attention_parts.bias
        return latent_attention(weights, name, x, self._latent, rotary, f"kv{layer}", bias=bias)
