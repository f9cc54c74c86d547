"""The configuration of Gemma 3n, whose layers differ in their gates and their sizes."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, TypeVar, cast

from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.json_file import shown

Config = dict[str, Any]
_Entry = TypeVar("_Entry", bool, float)


def gemma3n(reader: GgufReader, config: Config) -> Config:
    """What the file says of the layers.

    Raises:
        WeightsError: a key is missing or of the wrong type.
    """
    del config
    table = reader.tensor("per_layer_token_embd.weight")
    low = reader.tensor("blk.0.laurel_l.weight")
    if table is None or low is None:
        raise reader.error("per_layer_token_embd.weight or blk.0.laurel_l.weight is missing")
    bases = {
        "full_attention": reader.number("rope.freq_base", 1e6),
        "sliding_attention": reader.number("rope.freq_base_swa", 1e4),
    }
    slides = _listed(reader, "attention.sliding_window_pattern", bool)
    return {
        "layer_types": ["sliding_attention" if s else "full_attention" for s in slides],
        "intermediate_size": reader.by_layer("feed_forward_length"),
        "activation_sparsity_pattern": _shares(reader),
        "vocab_size_per_layer_input": table.shape[0],
        "laurel_rank": low.shape[0],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
    }


def _shares(reader: GgufReader) -> list[float]:
    """The share of each layer's gates that is zero: files have the quantile of the normal
    distribution, minus infinity for none."""
    scales = _listed(reader, "activation_sparsity_scale", float)
    return [NormalDist().cdf(scale) if scale > -math.inf else 0.0 for scale in scales]


def _listed(reader: GgufReader, key: str, kind: type[_Entry]) -> list[_Entry]:
    """An entry for each layer."""
    value: object = reader.find(key)
    stored = shown(value)
    entries = cast("list[object]", value) if isinstance(value, list) else []
    listed = [entry for entry in entries if isinstance(entry, kind)]
    if len(listed) != len(entries) or len(listed) != reader.layers():
        raise reader.error(f"{reader.architecture}.{key} is {stored}; layers need one each")
    return listed
