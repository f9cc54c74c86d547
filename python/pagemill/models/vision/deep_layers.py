"""The layers of a vision tower whose results are added in the first layers of a language model
(layers/media_rows.py)."""

from __future__ import annotations

from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list
from pagemill.ops.concat import MAX_INPUTS as MAX_CONCAT
from pagemill.weights.json_file import shown

_KEY = "deepstack_visual_indexes"


def deep_layers(config: Config, layers: int) -> tuple[int, ...]:
    """The numbers at `deepstack_visual_indexes`, of a tower with so many layers.

    Raises:
        ModelConfigError: there are too many, or one is no layer.
    """
    listed = as_list(config[_KEY])
    valid = listed is not None and all(type(layer) is int for layer in listed)
    if not valid or listed is None or len(listed) >= MAX_CONCAT:
        raise ModelConfigError(
            f"{_KEY} must list at most {MAX_CONCAT - 1} layers, it is {shown(config[_KEY])}"
        )
    if listed != sorted(set(listed)) or not all(0 <= layer < layers for layer in listed):
        raise ModelConfigError(f"{_KEY} must list layers of {layers} in ascending order")
    return tuple(listed)
