"""Mamba and Falcon-Mamba: state-space layers only; the latter normalizes B, C and what dt is made
of.

Weights: those of state_space_model.py, with `mixer.*` of `layers.selective`.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.selective import SelectiveShape, StepNorms, selective_mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import epsilon, flag, positive_int
from pagemill.models.state_space_keys import check_silu, step_rank
from pagemill.models.state_space_model import StateSpaceModel
from pagemill.ops.trace import Tensor


class MambaModel(StateSpaceModel):
    """One Mamba or Falcon-Mamba model."""

    def __init__(self, config: Config) -> None:
        check_silu(config)
        super().__init__(config, tied_by_default=True)
        norms = None
        if config.get("mixer_rms_eps") is not None:
            norms = StepNorms(epsilon(config, "mixer_rms_eps", 1e-6), weights=False)
        self._mixer = SelectiveShape(
            channels=_channels(config, self.hidden_size),
            states=positive_int(config, "state_size", 16),
            rank=step_rank(config, "time_step_rank", self.hidden_size),
            taps=positive_int(config, "conv_kernel", 4),
            bias=flag(config, "use_bias", False),
            conv_bias=flag(config, "use_conv_bias", True),
            norms=norms,
        )

    def mixer(self, weights: Weights, name: str, x: Tensor, layer: int) -> Tensor:
        return selective_mixer(weights, name, x, self._mixer, layer)


def _channels(config: Config, hidden_size: int) -> int:
    if config.get("intermediate_size") is not None:
        return positive_int(config, "intermediate_size")
    return positive_int(config, "expand", 2) * hidden_size
