"""Where the value of a sampling field comes from that a request does not state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Meta

from pagemill.config import ConfigError, ModelConfig
from pagemill.config.sampling import INT32_MAX, MODEL_FIELDS
from pagemill.engine.sampling import SamplingDefaults
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_object, shown
from pagemill.weights.source import ModelSource

_FILE = "generation_config.json"
_NEUTRAL = ("none", "vllm")


def _range(meta: Meta) -> tuple[float, float]:
    least = math.ulp(0.0) if meta.gt == 0 else meta.ge
    assert least is not None and meta.le is not None
    return least, meta.le


# The fields that a file may set, and their ranges.
_RANGES = {name: _range(spec.meta) for name, spec in MODEL_FIELDS.items()}
_RANGES["max_new_tokens"] = (1, INT32_MAX)
_SHAPING = MODEL_FIELDS.keys() - {"repetition_penalty"}

# For models that state nothing: what authors of models of that size recommend. Below 10^9
# parameters, SmolLM2's: at temperature 1 they lose the thread within a sentence. From there on,
# Llama 3's, the same from 1 to 405 billion.
_SMALL_PARAMETERS = 10**9
_SMALL: Mapping[str, Any] = {"temperature": 0.2, "top_p": 0.9}
_LARGE: Mapping[str, Any] = {"temperature": 0.6, "top_p": 0.9}


@dataclass(frozen=True, slots=True)
class ChosenDefaults:
    """What an unstated field means, the source of that (a phrase), and the operator's cap on
    generated tokens."""

    defaults: SamplingDefaults
    origin: str
    max_tokens_cap: int | None


def choose_defaults(model: ModelConfig, source: ModelSource) -> ChosenDefaults:
    """Precedence: `override_generation_config`, then the folder that `generation_config` names;
    "auto" is the model's own file, or its size if it states nothing but a penalty. The model's own
    `max_new_tokens` is a default; one that the operator chose is a cap too.

    Raises:
        ConfigError: a value is out of range, or a requested file cannot be used.
    """
    choice = model.generation_config
    overrides = _checked(model.override_generation_config, "--override-generation-config")
    if choice in _NEUTRAL:
        return _chosen({}, overrides, f"--generation-config {choice}")
    if choice != "auto":
        path = Path(choice) / _FILE
        return _chosen({}, _read(path) | overrides, str(path))
    path = source.path / _FILE
    try:
        own = _read(path) if source.kind == "hf" and path.is_file() else {}
    except ConfigError as error:
        raise ConfigError(f"{error}; --generation-config none ignores the file") from None
    if any(key in own for key in _SHAPING):
        return _chosen(own, overrides, f"the model's {_FILE}")
    small = source.parameters < _SMALL_PARAMETERS
    size = "below" if small else "from"
    origin = f"for models {size} 1 billion parameters that state none"
    return _chosen({**(_SMALL if small else _LARGE), **own}, overrides, origin)


def _chosen(own: Mapping[str, Any], operators: Mapping[str, Any], origin: str) -> ChosenDefaults:
    defaults = SamplingDefaults.from_generation_config({**own, **operators})
    return ChosenDefaults(defaults, origin, operators.get("max_new_tokens"))


def _read(path: Path) -> dict[str, Any]:
    try:
        return _checked(read_object(path), str(path))
    except WeightsError as error:
        raise ConfigError(str(error)) from None


def _checked(stated: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields that count, without those that are null."""
    checked: dict[str, Any] = {}
    for key, (least, most) in _RANGES.items():
        value = stated.get(key)
        if value is None:
            continue
        is_integer = key not in MODEL_FIELDS or MODEL_FIELDS[key].kind is int
        kinds = (int,) if is_integer else (int, float)
        # The comparison is false for NaN, too.
        if type(value) not in kinds or not least <= value <= most:
            kind = "an integer" if kinds == (int,) else "a number"
            raise ConfigError(
                f"{where}: {key} must be {kind} from {least:g} to {most:g}, it is {shown(value)}"
            )
        checked[key] = value
    return checked
