"""Rotary position embedding: the frequencies of each scaling rule, and the layer.

The frequencies equal those of `transformers`: the same formulas, rounded to f32 at the same places,
so that they differ by at most the last bit. Plain Python, since a table has a few dozen entries.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.ops.program import GRID_DIMS
from pagemill.ops.trace import Tensor

_F32_LIMIT = 2.0**128


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """`inv_freq` in radians per position; cosine and sine are multiplied by `mscale`."""

    inv_freq: tuple[float, ...]
    mscale: float = 1.0


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """Queries are multiplied by 1 + beta ln(1 + floor((position + offset) / context))."""

    beta: float
    context: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Rotary:
    """A table bound to a trace: call it on q and k [T, heads, head_dim]. Without `inv_freq` nothing
    rotates. Elements from `begin` on rotate; `offset` is added to positions."""

    positions: Tensor
    inv_freq: Tensor | None
    mscale: float
    interleaved: bool
    begin: int = 0
    offset: int = 0

    def __call__(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.inv_freq is None:
            return q, k
        return ops.rotary(
            q,
            k,
            self.positions,
            self.inv_freq,
            interleaved=self.interleaved,
            mscale=self.mscale,
            begin=self.begin,
            offset=self.offset,
        )

    def grown(self, q: Tensor, growth: QueryGrowth) -> Tensor:
        """q [T, heads, head_dim] scaled by the position of its tokens."""
        return ops.scale_by_position(
            q, self.positions, growth=growth.beta, context=growth.context, offset=growth.offset
        )

    def still(self) -> Rotary:
        """The positions alone, which rotate nothing."""
        return replace(self, inv_freq=None)

    def queries(self, q: Tensor) -> Tensor:
        """q alone rotated, for keys that another layer has stored."""
        return self(q, q)[0]


def bind_rotary(
    weights: Weights, name: str, table: RotaryTable, positions: Tensor, *, interleaved: bool
) -> Rotary:
    """Declare `table` as the constant `name`; positions i32 [T]."""
    inv_freq = weights.constant(name, table.inv_freq)
    return Rotary(positions, inv_freq, table.mscale, interleaved)


def bind_rotaries(
    weights: Weights,
    tables: Sequence[RotaryTable | None],
    positions: Tensor,
    *,
    interleaved: bool,
) -> list[Rotary | None]:
    """The tables of layers, each different one declared once; positions i32 [T]. None stays."""
    different = list(dict.fromkeys(table for table in tables if table is not None))
    bound: dict[RotaryTable | None, Rotary | None] = {None: None}
    for index, table in enumerate(different):
        name = "inv_freq" if len(different) == 1 else f"inv_freq.{index}"
        bound[table] = bind_rotary(weights, name, table, positions, interleaved=interleaved)
    return [bound[table] for table in tables]


def bind_grid_rotary(
    weights: Weights,
    name: str,
    table: RotaryTable,
    dims: Sequence[int],
    positions: Tensor,
    *,
    interleaved: bool = False,
) -> Rotary:
    """As `bind_rotary`, with positions i32 [T, 3] in time, row and column: `dims` has, for each
    frequency of `table`, the dimension by which it rotates."""
    rows = [
        [f if of == dim else 0.0 for f, of in zip(table.inv_freq, dims, strict=True)]
        for dim in range(GRID_DIMS)
    ]
    return Rotary(positions, weights.constant(name, rows), table.mscale, interleaved=interleaved)


def bind_grid_rotaries(
    weights: Weights,
    tables: Sequence[RotaryTable | None],
    dims: Sequence[Sequence[int]],
    positions: Tensor,
    *,
    interleaved: bool = False,
) -> list[Rotary | None]:
    """As `bind_rotaries`, with positions i32 [T, 3] and the `dims` of each layer (see
    `bind_grid_rotary`)."""
    of_layers = [
        None if table is None else (table, tuple(own))
        for table, own in zip(tables, dims, strict=True)
    ]
    different = list(dict.fromkeys(each for each in of_layers if each is not None))
    bound: dict[tuple[RotaryTable, tuple[int, ...]] | None, Rotary | None] = {None: None}
    for index, (table, own) in enumerate(different):
        name = "inv_freq" if len(different) == 1 else f"inv_freq.{index}"
        bound[table, own] = bind_grid_rotary(
            weights, name, table, own, positions, interleaved=interleaved
        )
    return [bound[each] for each in of_layers]


def rotary_table(rope: Mapping[str, Any], head_dim: int, max_positions: int) -> RotaryTable:
    """The table that `rope` (the `rope_parameters` of a config.json) describes.

    Raises:
        ValueError: the rule is not known, or one of its parameters is missing or makes no
            frequencies.
    """
    rule = rope.get("rope_type", "default")
    if not isinstance(rule, str) or rule not in _RULES:
        raise ValueError(f"unknown rope_type {rule!r:.40}; known: {', '.join(_RULES)}")
    share = _number(rope, "partial_rotary_factor", 1.0)
    dim = int(head_dim * share)
    if share > 1 or dim < 1 or dim + dim % 2 > head_dim:  # pairs rotate
        raise ValueError(f"partial_rotary_factor {share:g} of heads of {head_dim}")
    try:
        table = _RULES[rule](rope, head_dim if rule == "proportional" else dim, max_positions)
    except KeyError as error:
        raise ValueError(f"rope_type {rule!r} needs {error}") from error
    except ArithmeticError as error:
        raise ValueError(f"rope_type {rule!r}: no frequencies from {_stated(rope)}") from error
    if not all(map(math.isfinite, (*table.inv_freq, table.mscale))):
        raise ValueError(f"rope_type {rule!r}: no frequencies from {_stated(rope)}")
    return table


def _number(rope: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """The number > 0 at `key`; `default`, if there is one, stands for an absent or null value."""
    value: object = rope[key] if default is None else rope.get(key)
    value = default if value is None else value
    # The comparison is false for NaN, too.
    if type(value) is not int and type(value) is not float or not 0 < value < _F32_LIMIT:
        raise ValueError(f"{key} must be a number > 0")
    return float(value)


def _stated(rope: Mapping[str, Any]) -> str:
    numbers = [(key, value) for key, value in rope.items() if type(value) in (int, float)]
    shown = [f"{key:.40} {value:.6g}" for key, value in numbers if abs(value) < _F32_LIMIT]
    return ", ".join(shown[:8])


def _f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _wavelengths(base: float, dim: int) -> list[float]:
    """base^(2i / dim), each step rounded to f32."""
    return [_f32(base ** _f32(i / dim)) for i in range(0, dim, 2)]


def _default(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    del max_positions
    return RotaryTable(tuple(_f32(1.0 / w) for w in _wavelengths(_number(rope, "rope_theta"), dim)))


def _linear(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    factor = _number(rope, "factor")
    table = _default(rope, dim, max_positions)
    return RotaryTable(tuple(_f32(f / factor) for f in table.inv_freq))


def _llama3(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """Long wavelengths are stretched by `factor`, short ones kept, those between interpolated."""
    factor = _number(rope, "factor")
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    context = _number(rope, "original_max_position_embeddings")
    scaled: list[float] = []
    for frequency in _default(rope, dim, max_positions).inv_freq:
        wavelength = _f32(_f32(2 * math.pi) / frequency)
        if wavelength > context / low:
            frequency = _f32(frequency / factor)
        elif wavelength >= context / high:
            smooth = _f32(_f32(_f32(context / wavelength) - low) / (high - low))
            stretched = _f32(_f32(_f32(1 - smooth) * frequency) / factor)
            frequency = _f32(stretched + _f32(smooth * frequency))
        scaled.append(frequency)
    return RotaryTable(tuple(scaled))


def _factors(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """GGUF's form of llama3: the divisor of each frequency, precomputed."""
    table, factors = _default(rope, dim, max_positions), rope["factors"]
    if len(factors) != len(table.inv_freq):
        raise ValueError(f"{len(factors)} rope factors for {len(table.inv_freq)} frequencies")
    return RotaryTable(tuple(_f32(f / by) for f, by in zip(table.inv_freq, factors, strict=True)))


def _dynamic(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """A base for longer contexts: stretched by `alpha`, or, without it, beyond `max_positions`
    only, which no request reaches."""
    if rope.get("alpha") is None:
        return _default(rope, dim, max_positions)
    if dim <= 2:
        raise ValueError(f"rope_type 'dynamic' with alpha needs more than {dim} rotary dimensions")
    base = _number(rope, "rope_theta") * _number(rope, "alpha") ** (dim / (dim - 2))
    return RotaryTable(tuple(_f32(1.0 / w) for w in _wavelengths(base, dim)))


def _ntk(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """The "NTK-RoPE-fixed" and, with `mixed_b`, "-mixed" of GTE's first checkpoints, whose
    positions are those after scaling (https://kexue.fm/archives/9706, 6 and 10 to 13)."""
    del max_positions
    factor, base = _number(rope, "factor"), _number(rope, "rope_theta")
    if rope.get("mixed_b") is None:
        by = factor ** (2 / dim)
        return RotaryTable(
            tuple(_f32(_f32(1.0 / w) / by) for w in _wavelengths(base * factor, dim))
        )
    power = _number(rope, "mixed_b")
    a = math.log(factor) / (dim / 2) ** power
    return RotaryTable(
        tuple(
            _f32(_f32(1.0 / w) / math.exp(a * pair**power))
            for pair, w in enumerate(_wavelengths(base, dim), 1)
        )
    )


def _proportional(rope: Mapping[str, Any], head_dim: int, max_positions: int) -> RotaryTable:
    """The frequencies of whole heads, of which the last are 0: a part of the pairs rotates."""
    del max_positions
    pairs = int(_number(rope, "partial_rotary_factor", 1.0) * head_dim // 2)
    factor = _number(rope, "factor", 1.0)
    wavelengths = _wavelengths(_number(rope, "rope_theta"), head_dim)
    return RotaryTable(
        tuple(_f32(_f32(1.0 / w) / factor) if i < pairs else 0.0 for i, w in enumerate(wavelengths))
    )


def _longrope(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """LongRoPE (arXiv 2402.13753): a divisor of each frequency, for contexts longer than the
    original one or for others. All requests have the divisors of the longest context that is
    served, since keys in a cache cannot be rotated again once a request outgrows the original one.
    """
    original = _number(rope, "original_max_position_embeddings")
    longest = _number(rope, "max_model_len", max_positions)
    reach = "long" if longest > original else "short"
    key, stated_scale = f"{reach}_factor", f"{reach}_mscale"
    wavelengths = _wavelengths(_number(rope, "rope_theta"), dim)
    divisors = rope[key]
    if not isinstance(divisors, list) or len(cast("list[Any]", divisors)) != len(wavelengths):
        raise ValueError(f"{key} must list {len(wavelengths)} numbers, one for each frequency")
    numbers = [_number({key: value}, key) for value in cast("list[Any]", divisors)]
    frequencies = tuple(
        _f32(1.0 / _f32(_f32(by) * w)) for by, w in zip(numbers, wavelengths, strict=True)
    )
    for stated in (stated_scale, "attention_factor"):
        if rope.get(stated) is not None:
            return RotaryTable(frequencies, _number(rope, stated))
    factor = _number(rope, "factor", max_positions / original)
    if factor <= 1:
        return RotaryTable(frequencies)
    return RotaryTable(frequencies, math.sqrt(1 + math.log(factor) / math.log(original)))


def _yarn(rope: Mapping[str, Any], dim: int, max_positions: int) -> RotaryTable:
    """YaRN (arXiv 2309.00071): a ramp over the dimensions between kept and stretched."""
    base = _number(rope, "rope_theta")
    original = _number(rope, "original_max_position_embeddings")
    factor = _number(rope, "factor", max_positions / original)

    def turning_dim(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = turning_dim(_number(rope, "beta_fast", 32))
    high = turning_dim(_number(rope, "beta_slow", 1))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    span = (high - low) or 0.001
    frequencies: list[float] = []
    for index, wavelength in enumerate(_wavelengths(base, dim)):
        kept = _f32(1.0 - min(max(_f32(_f32(index - low) / span), 0.0), 1.0))
        stretched = _f32(1.0 / _f32(factor * wavelength))
        plain = _f32(1.0 / wavelength)
        frequencies.append(_f32(_f32(stretched * _f32(1 - kept)) + _f32(plain * kept)))
    return RotaryTable(tuple(frequencies), _yarn_mscale(rope, factor))


def yarn_mscale(factor: float, weight: float) -> float:
    """YaRN's factor of cosines and sines for a context `factor` times as long (section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _yarn_mscale(rope: Mapping[str, Any], factor: float) -> float:
    if rope.get("attention_factor") is not None:
        return _number(rope, "attention_factor")
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        whole = yarn_mscale(factor, _number(rope, "mscale_all_dim"))
        return yarn_mscale(factor, _number(rope, "mscale")) / whole
    return yarn_mscale(factor, 1.0)


_RULES: dict[str, Callable[[Mapping[str, Any], int, int], RotaryTable]] = {
    "default": _default,
    "dynamic": _dynamic,
    "factors": _factors,
    "linear": _linear,
    "llama3": _llama3,
    "longrope": _longrope,
    "ntk": _ntk,
    "proportional": _proportional,
    "su": _longrope,  # its first name
    "yarn": _yarn,
}
