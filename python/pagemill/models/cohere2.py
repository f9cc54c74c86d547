"""Command R7B and A (`Cohere2ForCausalLM`): Command R with sliding windows on three of four layers;
the others have no positions.

Weights as Command R's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number, windows_by_type
from pagemill.models.decoder import Decoder


class Cohere2Model(Decoder):
    """One Command R7B model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.norm_bias = False
        self.parallel = True
        self.interleaved = True
        self.logits_scale = number(config, "logit_scale", 0.0625)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=4)
        self.rotary = self.rotary_in_windows()
