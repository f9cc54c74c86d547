"""SmolLM3: Llama without positions in every fourth layer.

Weights as Llama's.
"""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, positive_int, sliding_windows
from pagemill.models.decoder import Decoder


class SmolLm3Model(Decoder):
    """One SmolLM3 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)
        layers = self.sizes.layers
        rotates = config.get("no_rope_layers")
        if rotates is None:
            every = positive_int(config, "no_rope_layer_interval", 4)
            rotates = [(layer + 1) % every for layer in range(layers)]
        rotates = as_list(rotates)
        if rotates is None or len(rotates) != layers:
            raise ModelConfigError(f"no_rope_layers must list {layers} layers, 0 or 1 for each")
        self.rotary = [
            table if rotate else None for table, rotate in zip(self.rotary, rotates, strict=True)
        ]
        self.windows = sliding_windows(config, layers)
