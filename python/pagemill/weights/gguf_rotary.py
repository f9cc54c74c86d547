"""The rotary parameters in GGUF's metadata, in the form of a `config.json`."""

from __future__ import annotations

import math
from typing import Any

from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.read import read_f32


def read_rope(reader: GgufReader, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` of heads of `head_dim`.

    Raises:
        WeightsError: a key or a tensor of factors does not fit.
    """
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": reader.number("rope.freq_base", 10000.0),
    }
    rotary = reader.find_int("rope.dimension_count") or head_dim
    if rotary > head_dim:
        raise reader.error(
            f"{reader.architecture}.rope.dimension_count is {rotary}, heads have {head_dim}"
        )
    if rotary < head_dim:
        rope["partial_rotary_factor"] = rotary / head_dim
    return rope | _scaling(reader) | _factors(reader, rotary)


def _scaling(reader: GgufReader) -> dict[str, Any]:
    rule = reader.find_str("rope.scaling.type")
    if rule in (None, "none"):
        return {}
    rope: dict[str, Any] = {
        "rope_type": rule,
        "factor": reader.number("rope.scaling.factor", 1.0),
    }
    original = reader.find_int("rope.scaling.original_context_length")
    if original is not None:
        rope["original_max_position_embeddings"] = original
    if rule == "yarn" and reader.find("rope.scaling.attn_factor") is not None:
        # Beside the factor that follows from how far contexts are stretched.
        stretched = 1 + 0.1 * math.log(max(rope["factor"], 1.0))
        rope["attention_factor"] = reader.number("rope.scaling.attn_factor", 1.0) * stretched
    for key in ("beta_fast", "beta_slow"):
        if reader.find(f"rope.scaling.yarn_{key}") is not None:
            rope[key] = reader.number(f"rope.scaling.yarn_{key}", 0.0)
    return rope


def _factors(reader: GgufReader, rotary: int) -> dict[str, Any]:
    """Divisors of frequencies: those of Llama 3.1's scaling, computed by the program that wrote the
    file, or those of LongRoPE."""
    scaling: dict[str, Any] = {}
    for name, key in (
        ("rope_freqs", "factors"),
        ("rope_factors_long", "long_factor"),
        ("rope_factors_short", "short_factor"),
    ):
        tensor = reader.tensor(f"{name}.weight")
        if tensor is None:
            continue
        if len(tensor.shape) != 1 or 2 * tensor.shape[0] > rotary:
            raise reader.error(
                f"{name}.weight is {list(tensor.shape)}, heads have {rotary} that rotate"
            )
        scaling[key] = read_f32(tensor).tolist()
    if "factors" in scaling:
        return scaling | {"rope_type": "factors"}
    if scaling:
        original = reader.find_int("rope.scaling.original_context_length")
        original = original or reader.integer("context_length")
        scaling |= {"rope_type": "longrope", "original_max_position_embeddings": original}
        context, usual = reader.integer("context_length"), 1.0
        if 1 < original < context:
            usual = math.sqrt(1 + math.log(context / original) / math.log(original))
        scaling["attention_factor"] = reader.number("rope.scaling.attn_factor", usual)
    return scaling
