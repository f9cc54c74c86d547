"""Mamba-2: state-space layers only.

Weights: those of state_space_model.py, with `mixer.*` of `layers.state_space`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.state_space import MixerShape, mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, positive_int
from pagemill.models.state_space_keys import check_mixer
from pagemill.models.state_space_model import StateSpaceModel
from pagemill.ops.trace import Tensor


class Mamba2Model(StateSpaceModel):
    """One Mamba-2 model."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        bias = flag(config, "use_bias", False)
        self._mixer = MixerShape(
            heads=positive_int(config, "num_heads", 128),
            head_dim=positive_int(config, "head_dim", 64),
            groups=positive_int(config, "n_groups", 8),
            states=positive_int(config, "state_size", 128),
            taps=positive_int(config, "conv_kernel", 4),
            bias=bias,
            output_bias=bias,
            conv_bias=flag(config, "use_conv_bias", True),
        )
        check_mixer(config, self._mixer)

    def mixer(self, weights: Weights, name: str, x: Tensor, layer: int) -> Tensor:
        return mixer(weights, name, x, self._mixer, self.norm_eps, layer)
