"""Baichuan: Llama with q, k and v in one matrix, and ALiBi in place of rotary positions in 13B.

Weights as Llama's; `self_attn.W_pack` has the rows of q, k and v.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Renamed
from pagemill.models.decoder import Decoder

_NORMALIZED_HEAD_VOCAB = 125696  # Baichuan 2


class BaichuanModel(Decoder):
    """One Baichuan model."""

    def __init__(self, config: Config) -> None:
        # Nothing else says that a model is one with ALiBi.
        rotary = "max_position_embeddings" in config
        if not rotary:
            config = Renamed(config, {"max_position_embeddings": "model_max_length"})
        super().__init__(config)
        if self.sizes.vocab_size == _NORMALIZED_HEAD_VOCAB:
            raise ModelConfigError(
                "Baichuan 2, whose head has normalized rows, is not supported; Baichuan 1 is"
            )
        slopes: tuple[float, ...] = ()
        if not rotary:
            self.rotary = (None,) * self.sizes.layers
            slopes = alibi_slopes(self.sizes.heads)
        self.attention_parts = AttentionParts(qkv=("W_pack",), slopes=slopes)
