"""North (text; `CohereCompassForCausalLM`): Command R7B's layers, with rotary parameters for each
kind of layer, or none.

Weights as Command R's.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    layer_count,
    layer_types,
    number,
    windows_by_type,
)
from pagemill.models.decoder import Decoder


class CohereCompassModel(Decoder):
    """One North model."""

    def __init__(self, config: Config) -> None:
        layers = layer_count(config)
        types = layer_types(config, layers, (SLIDING, FULL)) or (FULL,) * layers
        super().__init__(
            config, tied_by_default=True, eps=("layer_norm_eps", 1e-5), layer_types=types
        )
        self.layer_norms = True
        self.norm_bias = False
        self.parallel = True
        self.logits_scale = number(config, "logit_scale", 1.0)
        self.windows = windows_by_type(config, self.sizes.layers)
