"""GLM-4 (`GlmForCausalLM`): Llama with interleaved rotary pairs on half of each head, biases on q,
k and v, and gate and up in one matrix.

Weights as Llama's, with `mlp.gate_up_proj`.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder


class GlmModel(Decoder):
    """One GLM model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1.5625e-7))
        self.mlp_parts = MlpParts(up=("gate_up_proj",))
        self.interleaved = True
        self.attention_parts = AttentionParts(bias=flag(config, "attention_bias", True))
