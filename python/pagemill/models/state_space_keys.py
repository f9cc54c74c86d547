"""Checks of a configuration for all families with state-space layers."""

from __future__ import annotations

import math

from pagemill.layers.state_space import MixerShape
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation
from pagemill.ops import ActivationKind
from pagemill.weights.json_file import shown

# transformers 5 writes infinity as an object, older ones as a number.
_NO_LIMIT = ([0, math.inf], [0, {"__float__": "Infinity"}])


def check_mixer(config: Config, shape: MixerShape) -> None:
    """Reject what no state-space layer here supports.

    Raises:
        ModelConfigError: heads do not divide by groups, the activation is not SiLU, or the steps
            are clamped.
    """
    if shape.heads % shape.groups:
        raise ModelConfigError(f"{shape.heads} heads do not make {shape.groups} groups")
    if activation(config, "hidden_act", "silu") is not ActivationKind.SILU:
        raise ModelConfigError(
            f"hidden_act={shown(config['hidden_act'])} is not supported by this family"
        )
    limit = config.get("time_step_limit")
    if limit is not None and limit not in _NO_LIMIT:
        raise ModelConfigError(f"time_step_limit={shown(limit)} is not supported by this family")
