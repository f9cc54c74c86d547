"""Command R7B and A (`Cohere2ForCausalLM`): Command R with sliding windows on three of four layers;
the others have no positions.

Weights as Command R's.
"""

from __future__ import annotations

from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import number, windows_by_type
from pagemill.models.decoder import Decoder
from pagemill.ops.trace import Tensor


class Cohere2Model(Decoder):
    """One Command R7B model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("layer_norm_eps", 1e-5))
        self.parallel = True
        self.interleaved = True
        self.logits_scale = number(config, "logit_scale", 0.0625)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=4)
        self.rotary = self.rotary_in_windows()

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps, bias=False)
