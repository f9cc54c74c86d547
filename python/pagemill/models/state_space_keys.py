"""The configuration of layers with a recurrent state, which several families have."""

from __future__ import annotations

import math

from pagemill.layers.gated_delta import DeltaShape
from pagemill.layers.state_space import MixerShape
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import activation, flag, positive_int
from pagemill.ops import ActivationKind
from pagemill.weights.json_file import shown

# transformers 5 writes infinity as an object, older ones as a number.
_NO_LIMIT = ([0, math.inf], [0, {"__float__": "Infinity"}])


def read_mixer(config: Config, inner: int) -> MixerShape:
    """The mixer of the keys `mamba_*`, with `inner` features.

    Raises:
        ModelConfigError: one is missing, or they do not fit each other.
    """
    heads = positive_int(config, "mamba_n_heads", 128)
    automatic = config.get("mamba_d_head") in (None, "auto")
    head_dim = inner // heads if automatic else positive_int(config, "mamba_d_head")
    if heads * head_dim != inner:
        raise ModelConfigError(f"{inner} features do not make {heads} heads of {head_dim}")
    bias = flag(config, "mamba_proj_bias", False)
    shape = MixerShape(
        heads,
        head_dim,
        positive_int(config, "mamba_n_groups", 1),
        states=positive_int(config, "mamba_d_state", 256),
        taps=positive_int(config, "mamba_d_conv", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=flag(config, "mamba_conv_bias", True),
    )
    check_mixer(config, shape)
    return shape


def check_delta(shape: DeltaShape) -> DeltaShape:
    """The shape of a layer of the gated delta rule, if there is one.

    Raises:
        ModelConfigError: heads do not divide by groups.
    """
    if shape.heads % shape.groups:
        raise ModelConfigError(
            f"linear_num_value_heads={shape.heads} is not a multiple of"
            f" linear_num_key_heads={shape.groups}"
        )
    return shape


def step_rank(config: Config, key: str, hidden_size: int) -> int:
    """The number of features that dt is made of, at `key`; by default, and if it is "auto", a
    sixteenth of the hidden size.

    Raises:
        ModelConfigError: it is not a positive number.
    """
    if config.get(key) in (None, "auto"):
        return -(-hidden_size // 16)
    return positive_int(config, key)


def check_silu(config: Config, key: str = "hidden_act") -> None:
    """Reject another activation than SiLU.

    Raises:
        ModelConfigError: it is another.
    """
    if activation(config, key, "silu") is not ActivationKind.SILU:
        raise ModelConfigError(f"{key}={shown(config[key])} is not supported by this family")


def check_mixer(config: Config, shape: MixerShape, kind_key: str = "hidden_act") -> None:
    """Reject what no state-space layer here supports; `kind_key` names the activation.

    Raises:
        ModelConfigError: heads do not divide by groups, the activation is not SiLU, or the steps
            are clamped.
    """
    if shape.heads % shape.groups:
        raise ModelConfigError(f"{shape.heads} heads do not make {shape.groups} groups")
    check_silu(config, kind_key)
    limit = config.get("time_step_limit")
    if limit is not None and limit not in _NO_LIMIT:
        raise ModelConfigError(f"time_step_limit={shown(limit)} is not supported by this family")
