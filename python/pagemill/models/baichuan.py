"""Baichuan: Llama with q, k and v in one matrix, and ALiBi in place of rotary positions in 13B.

Baichuan 2 normalizes the rows of the head.

Weights as Llama's; `self_attn.W_pack` has the rows of q, k and v.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config
from pagemill.models.config_keys import Renamed
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor

_VOCAB_OF_2 = 125696  # Baichuan 2; no key says so in all configurations


class BaichuanModel(Decoder):
    """One Baichuan model."""

    def __init__(self, config: Config) -> None:
        # Nothing else says that a model is one with ALiBi.
        rotary = "max_position_embeddings" in config
        if not rotary:
            config = Renamed(config, {"max_position_embeddings": "model_max_length"})
        super().__init__(config)
        baichuan2 = self.sizes.vocab_size == _VOCAB_OF_2 or "z_loss_weight" in config
        self._normalizes = baichuan2
        slopes: tuple[float, ...] = ()
        if not rotary:
            self.rotary = (None,) * self.sizes.layers
            slopes = alibi_slopes(self.sizes.heads)
        self.attention_parts = AttentionParts(qkv=("W_pack",), slopes=slopes)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        y = super().logits(weights, rows)
        if not self._normalizes:
            return y
        shape = (self.sizes.vocab_size, self.sizes.hidden_size)
        return ops.scale_columns(y, weights.inverse_norms(f"{self.names.head}.weight", shape))
