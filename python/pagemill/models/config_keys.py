"""Typed reading of a configuration, and the part of it that all decoders share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pagemill.layers.mlp import activation_kind
from pagemill.layers.rotary import RotaryTable, rotary_table
from pagemill.models.base import Config, ModelConfigError
from pagemill.ops import ActivationKind


def positive_int(config: Config, key: str, default: int | None = None) -> int:
    """The integer > 0 at `key`; `default` where it is absent or null.

    Raises:
        ModelConfigError: it is missing without default, or no such number.
    """
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"the configuration needs {key} > 0, it has {value!r}")
    return value


def number(config: Config, key: str, default: float) -> float:
    """The number at `key`.

    Raises:
        ModelConfigError: it is no number.
    """
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ModelConfigError(f"the configuration's {key} should be a number, it is {value!r}")
    return float(value)


def activation(config: Config, key: str, default: str) -> ActivationKind:
    """The activation that `key` names.

    Raises:
        ModelConfigError: there is none of this name.
    """
    try:
        return activation_kind(str(config.get(key) or default))
    except ValueError as error:
        raise ModelConfigError(f"{key}: {error}") from error


def refuse(config: Config, *keys: str) -> None:
    """Raise ModelConfigError if one of `keys` is set: what it asks for is not supported."""
    for key in keys:
        if config.get(key):
            raise ModelConfigError(f"{key}={config[key]!r} is not supported by this family")


def rope_parameters(config: Config, layer_type: str | None = None) -> Mapping[str, Any]:
    """The rotary parameters, of one layer type where they differ by layer.

    Newer checkpoints have one `rope_parameters` object (or one for each layer type); older ones
    have `rope_theta`, `rope_scaling` and, for sliding layers, `rope_local_base_freq`.
    """
    rope: dict[str, Any] | None = config.get("rope_parameters")
    if rope is not None:
        if layer_type is None:
            return rope
        if layer_type in rope:
            return rope[layer_type]
        raise ModelConfigError(f"rope_parameters has no entry for {layer_type}")
    if layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        return {"rope_type": "default", "rope_theta": config["rope_local_base_freq"]}
    scaling = dict(config.get("rope_scaling") or {})
    if "type" in scaling:  # the key's first name
        scaling.setdefault("rope_type", scaling.pop("type"))
    return {"rope_type": "default", "rope_theta": config.get("rope_theta", 10000.0)} | scaling


def make_rotary_table(config: Config, head_dim: int, layer_type: str | None = None) -> RotaryTable:
    """The rotary table of the configuration.

    Raises:
        ModelConfigError: its parameters are missing or not supported.
    """
    positions = positive_int(config, "max_position_embeddings")
    try:
        return rotary_table(rope_parameters(config, layer_type), head_dim, positions)
    except (ValueError, TypeError) as error:
        raise ModelConfigError(f"rotary embedding: {error}") from error


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """Sizes that every decoder's configuration has, under the same keys."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    rms_norm_eps: float
    tied: bool

    @classmethod
    def read(cls, config: Config, *, tied_by_default: bool) -> Self:
        """Read them.

        Raises:
            ModelConfigError: one is missing, or they do not fit each other.
        """
        hidden = positive_int(config, "hidden_size")
        heads = positive_int(config, "num_attention_heads")
        kv_heads = positive_int(config, "num_key_value_heads", heads)
        if heads % kv_heads:
            raise ModelConfigError(f"{heads} heads cannot share {kv_heads} key-value heads")
        return cls(
            vocab_size=positive_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=positive_int(config, "intermediate_size"),
            layers=positive_int(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=positive_int(config, "head_dim", hidden // heads),
            max_positions=positive_int(config, "max_position_embeddings"),
            rms_norm_eps=number(config, "rms_norm_eps", 1e-6),
            tied=bool(config.get("tie_word_embeddings", tied_by_default)),
        )
