"""The configuration of Gemma 4, whose layers differ in their sizes."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.json_file import shown
from pagemill.weights.read import read_f32

Config = dict[str, Any]


def gemma4(reader: GgufReader, config: Config) -> Config:
    """What the file says of the layers.

    Raises:
        WeightsError: a key is missing, of the wrong type, or has another number for layers alike.
    """
    layers: int = config["num_hidden_layers"]
    slides = [bool(slide) for slide in _listed(reader, "attention.sliding_window_pattern", layers)]
    heads = _listed(reader, "attention.head_count_kv", layers)
    sizes = _listed(reader, "feed_forward_length", layers)
    full_dim = reader.integer("attention.key_length")
    dim = reader.integer("attention.key_length_swa")
    rotary = reader.find_int("rope.dimension_count_swa") or dim
    keys, values = reader.layers_with("attn_k.weight"), reader.layers_with("attn_v.weight")
    table = reader.tensor("per_layer_token_embd.weight")
    return {
        "layer_types": ["sliding_attention" if s else "full_attention" for s in slides],
        "sliding_window": reader.integer("attention.sliding_window"),
        "intermediate_size": min(sizes),
        "use_double_wide_mlp": min(sizes) < max(sizes),
        "head_dim": dim,
        "global_head_dim": full_dim,
        "num_key_value_heads": _of(reader, heads, slides, True),
        "num_global_key_value_heads": _of(reader, heads, slides, False),
        "attention_k_eq_v": bool(set(keys) - set(values)),
        "vocab_size_per_layer_input": table.shape[0] if table else config["vocab_size"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": reader.number("rope.freq_base", 1e6),
                "partial_rotary_factor": _rotating(reader, full_dim),
            },
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": reader.number("rope.freq_base_swa", 10000.0),
                "partial_rotary_factor": rotary / dim,
            },
        },
    }


def _rotating(reader: GgufReader, dim: int) -> float:
    """The part of a wide head that rotates: files have divisors of frequencies, 1 or 1e30."""
    tensor = reader.tensor("rope_freqs.weight")
    if tensor is None:
        return 1.0
    divisors = read_f32(tensor) if math.prod(tensor.shape) == dim // 2 else np.zeros(1, np.float32)
    rotating = int((divisors == 1).sum())
    if (divisors[:rotating] != 1).any() or (divisors[rotating:] < 1e20).any():
        raise reader.error(f"rope_freqs.weight is not {dim // 2} divisors, first 1 and then 1e30")
    return rotating / len(divisors)


def _listed(reader: GgufReader, key: str, layers: int) -> list[int]:
    """A number for each layer; files may state one for all."""
    value: object = reader.find(key)
    entries = cast("list[object]", value) if isinstance(value, list) else [value] * layers
    if len(entries) != layers or not all(isinstance(entry, int) for entry in entries):
        raise reader.error(f"{reader.architecture}.{key} is {shown(entries)}; layers need one each")
    return cast("list[int]", entries)


def _of(reader: GgufReader, heads: list[int], slides: list[bool], sliding: bool) -> int:
    """The number of key-value heads of layers of one kind."""
    found = {count for count, slide in zip(heads, slides, strict=True) if slide is sliding}
    found = found or set(heads)
    if len(found) > 1:
        raise reader.error(f"layers of one kind have {sorted(found)} key-value heads")
    return found.pop()
