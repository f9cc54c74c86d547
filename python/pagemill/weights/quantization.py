"""How a checkpoint's matrices are quantized: `quantization_config` of a config.json.

    quantization = parse_quantization(config)          # None: nothing is quantized
    if quantization is not None and quantization.covers("model.layers.0.mlp.down_proj"):
        ...

The configuration says what a matrix may be stored as; what it is stored as, its tensors say
(`binder`). Whatever is not understood is refused: a checkpoint is never read as if it were not
quantized. Another method is a parser and a row of `_PARSERS`.

Formats: the `quantization_config` of transformers (`fp8`, `awq`, `gptq`) and of the
compressed-tensors library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.module_names import ModuleNames, unsupported_patterns

Config = Mapping[str, Any]


class QuantizationError(WeightsError):
    """A quantization that is not supported; the message names the method, the field and what is."""


@dataclass(frozen=True, slots=True)
class ScaledQuantization:
    """Matrices of 8-bit elements times scales, which lie beside them as `<module>.weight_scale` or
    `weight_scale_inv` (both multiply).

    `dtype` is "i8" or "f8_e4m3"; `block` the rows and columns that share a scale, None where a row
    or the matrix does; `int8_activations`: made for activations that are int8, too.
    """

    method: str
    dtype: str
    block: tuple[int, int] | None
    int8_activations: bool
    excluded: ModuleNames = field(default_factory=ModuleNames)
    notes: tuple[str, ...] = ()
    """What the operator should know of the checkpoint."""

    def covers(self, module: str) -> bool:
        """May the matrix of `module` be stored so?"""
        return module not in self.excluded


@dataclass(frozen=True, slots=True)
class GroupQuantization:
    """Matrices of integers packed in words, with a scale and perhaps a zero point for each row and
    group of columns. Their tensors say which matrices are.

    `layout` is that of program text (`cc/program/assembly.h`); `group` None: whole rows; `zeros`:
    every matrix has a tensor of zero points.
    """

    method: str
    layout: str
    bits: int
    group: int | None
    zeros: bool = True
    notes: tuple[str, ...] = ()


Quantization = ScaledQuantization | GroupQuantization

_KEYS = ("quantization_config", "compression_config")  # the latter: compressed-tensors before 0.8


def parse_quantization(config: Config) -> Quantization | None:
    """The quantization that `config` (a config.json) states; None where it states none.

    Raises:
        QuantizationError: one that is not supported, or that makes no sense.
    """
    for key in _KEYS:
        entry = config.get(key)
        if entry is None:
            continue
        if not isinstance(entry, Mapping):
            raise QuantizationError(f"{key} is no object")
        section = cast("Config", entry)
        method = section.get("quant_method")
        if not isinstance(method, str) or method not in _PARSERS:
            raise QuantizationError(
                f"{key}: the quant_method {shown(method)} is not supported;"
                f" supported: {', '.join(sorted(_PARSERS))}"
            )
        return _PARSERS[method](section)
    return None


def refuse(method: str, name: str, value: object, supported: str) -> QuantizationError:
    """The error of a field `name` that has a `value` which is not among those `supported`."""
    return QuantizationError(
        f"quantization_config ({method}): {name} {shown(value)} is not supported;"
        f" supported: {supported}"
    )


def module_names(method: str, section: Config, name: str) -> ModuleNames:
    """The list of modules in the field `name`.

    Raises:
        QuantizationError: it is no list of names and patterns.
    """
    entries: object = section.get(name)
    listed = cast("list[object]", entries) if isinstance(entries, list) else []
    if (entries is not None and not isinstance(entries, list)) or not all(
        isinstance(entry, str) and entry for entry in listed
    ):
        raise refuse(method, name, cast("object", entries), "a list of module names")
    names = tuple(cast("list[str]", listed))
    for value, supported in unsupported_patterns(names):
        raise refuse(method, name, value, supported)
    return ModuleNames(names)


def _require(method: str, name: str, value: object, allowed: Mapping[Any, str]) -> None:
    if value not in list(allowed):  # a list, which may be compared with what cannot be a key
        raise refuse(method, name, value, ", ".join(allowed.values()))


_MAX_BLOCK = 2**30  # rows or columns that share a scale


def _block(method: str, name: str, value: object) -> tuple[int, int] | None:
    """Rows and columns of a block: [128, 128] or "128x128"."""
    if value is None:
        return None
    parts: object = value.split("x") if isinstance(value, str) else value
    try:
        rows, columns = (int(part) for part in cast("list[Any]", parts))
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse(method, name, value, "two sizes, rows and columns") from error
    if not (1 <= rows <= _MAX_BLOCK and 1 <= columns <= _MAX_BLOCK) or columns % 4:
        raise refuse(method, name, value, "rows of 1 and more, columns a multiple of 4")
    return rows, columns


_STATIC_NOTE = (
    "the checkpoint's scales of activations (input_scale) are not used: activations are scaled row"
    " by row, which is finer"
)
_CACHE_NOTE = "the checkpoint's scales of the KV cache are not used; see --kv-cache-dtype"


def _cache_notes(section: Config) -> tuple[str, ...]:
    return (_CACHE_NOTE,) if section.get("kv_cache_scheme") else ()


def _fp8(section: Config) -> ScaledQuantization:
    """transformers' FP8: e4m3 weights with a scale a tensor, a row or a block."""
    _require("fp8", "fmt", section.get("fmt", "e4m3"), {"e4m3": "e4m3"})
    scheme = section.get("activation_scheme", "dynamic")
    _require("fp8", "activation_scheme", scheme, {"dynamic": "dynamic", "static": "static"})
    excluded = ModuleNames(
        module_names("fp8", section, "modules_to_not_convert").entries
        + module_names("fp8", section, "ignored_layers").entries
    )
    block = _block("fp8", "weight_block_size", section.get("weight_block_size"))
    notes = _cache_notes(section) + ((_STATIC_NOTE,) if scheme == "static" else ())
    return ScaledQuantization("fp8", "f8_e4m3", block, False, excluded, notes)


_COMPRESSED = "compressed-tensors"
_PACKED = "pack-quantized"
_FORMATS = ("float-quantized", "int-quantized", "naive-quantized", _PACKED)


def _compressed_tensors(section: Config) -> Quantization:
    """compressed-tensors: int8 or e4m3 weights, scales a tensor, a row or (e4m3) a block; packed
    integers of 4 or 8 bits, scales a row or a group of columns."""
    for name in ("sparsity_config", "transform_config"):
        value = _object(name, section.get(name))
        if value and value.get("format") != "dense":
            raise refuse(_COMPRESSED, name, dict(value), "none")
    groups = section.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise refuse(_COMPRESSED, "config_groups", cast("object", groups), "at least one group")
    excluded = module_names(_COMPRESSED, section, "ignore")
    found: list[Quantization] = []
    for name, group in cast("Mapping[str, Any]", groups).items():
        if not isinstance(group, Mapping):
            raise refuse(_COMPRESSED, f"config_groups.{name}", group, "an object")
        scheme = _group(f"config_groups.{name}", cast("Config", group), section, excluded)
        if scheme not in found:
            found.append(scheme)
    if len(found) > 1:
        raise refuse(
            _COMPRESSED, "config_groups", sorted(cast("Config", groups)), "one scheme in all groups"
        )
    return found[0]


def _group(name: str, group: Config, section: Config, excluded: ModuleNames) -> Quantization:
    stored = group.get("format") or section.get("format")
    _require(_COMPRESSED, "format", stored, {known: known for known in _FORMATS})
    if group.get("output_activations") is not None:
        raise refuse(_COMPRESSED, f"{name}.output_activations", "present", "none")
    weights = _object(f"{name}.weights", group.get("weights"))
    if stored == _PACKED:
        return _packed(name, weights, group, _cache_notes(section))
    _check_numbers(f"{name}.weights", weights)
    integers = weights["type"] == "int"
    strategies = {"tensor": "tensor", "channel": "channel"}
    if not integers:
        strategies["block"] = "block"
    _require(_COMPRESSED, f"{name}.weights.strategy", weights.get("strategy"), strategies)
    if weights.get("symmetric", True) is not True:
        raise refuse(_COMPRESSED, f"{name}.weights.symmetric", weights["symmetric"], "true")
    block = None
    if weights["strategy"] == "block":
        at = f"{name}.weights.block_structure"
        block = _block(_COMPRESSED, at, weights.get("block_structure"))
        if block is None:
            raise refuse(_COMPRESSED, at, None, "two sizes, rows and columns")
    notes = _cache_notes(section)
    activations = _object(f"{name}.input_activations", group.get("input_activations"))
    if activations:
        _check_numbers(f"{name}.input_activations", activations)
        if (activations["type"] == "int") != integers:
            raise refuse(
                _COMPRESSED, f"{name}.input_activations.type", activations["type"], weights["type"]
            )
        if activations.get("dynamic", False) is False:
            notes += (_STATIC_NOTE,)
    return ScaledQuantization(
        method=_COMPRESSED,
        dtype="i8" if integers else "f8_e4m3",
        block=block,
        int8_activations=integers and bool(activations),
        excluded=excluded,
        notes=notes,
    )


def _object(name: str, value: object) -> Config:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refuse(_COMPRESSED, name, value, "an object")
    return cast("Config", value)


def _check_numbers(name: str, entry: Config) -> None:
    _require(_COMPRESSED, f"{name}.type", entry.get("type"), {"int": "int", "float": "float"})
    _require(_COMPRESSED, f"{name}.num_bits", entry.get("num_bits"), {8: "8"})


def _packed(name: str, weights: Config, group: Config, notes: tuple[str, ...]) -> GroupQuantization:
    _require(_COMPRESSED, f"{name}.weights.type", weights.get("type"), {"int": "int"})
    strategy = weights.get("strategy")
    allowed = {"channel": "channel", "group": "group"}
    _require(_COMPRESSED, f"{name}.weights.strategy", strategy, allowed)
    bits = _bits(_COMPRESSED, f"{name}.weights.num_bits", weights.get("num_bits"), (4, 8))
    size = weights.get("group_size") if strategy == "group" else -1
    columns = _columns(_COMPRESSED, f"{name}.weights.group_size", size)
    notes += (_WIDE_NOTE,) if group.get("input_activations") else ()
    symmetric = weights.get("symmetric", True)
    _require(_COMPRESSED, f"{name}.weights.symmetric", symmetric, {True: "true", False: "false"})
    return GroupQuantization(_COMPRESSED, "pack_quantized", bits, columns, not symmetric, notes)


_WIDE_NOTE = (
    "the checkpoint was made for quantized activations; they are rounded as --activation-dtype says"
)


def _bits(method: str, name: str, value: object, allowed: Sequence[int]) -> int:
    if type(value) is not int or value not in allowed:
        raise refuse(method, name, value, " and ".join(str(bits) for bits in allowed))
    return value


def _columns(method: str, name: str, value: object) -> int | None:
    """Columns that share a scale; None, all of a row, where -1 says so."""
    if type(value) is int and value == -1:
        return None
    if type(value) is not int or not 32 <= value <= _MAX_BLOCK or value % 32:
        raise refuse(method, name, value, "multiples of 32, and -1 for whole rows")
    return value


def _awq(section: Config) -> GroupQuantization:
    """AutoAWQ's GEMM layout."""
    version = section.get("version", "gemm")
    lowered = version.lower() if isinstance(version, str) else version
    if lowered != "gemm":
        raise refuse("awq", "version", version, "gemm")
    bits = _bits("awq", "bits", section.get("bits", section.get("w_bit")), (4,))
    size = section.get("group_size", section.get("q_group_size"))
    return GroupQuantization("awq", "awq", bits, _columns("awq", "group_size", size))


def _gptq(section: Config) -> GroupQuantization:
    """AutoGPTQ's and GPTQModel's layout, with zeros stored less one (gptq) or as they are."""
    stored = section.get("checkpoint_format", "gptq")
    if section.get("is_marlin_format"):
        stored = "marlin"
    _require("gptq", "checkpoint_format", stored, {"gptq": "gptq", "gptq_v2": "gptq_v2"})
    if section.get("dynamic"):
        raise refuse("gptq", "dynamic", section["dynamic"], "the same bits and groups everywhere")
    bits = _bits("gptq", "bits", section.get("bits"), (4, 8))
    columns = _columns("gptq", "group_size", section.get("group_size"))
    return GroupQuantization("gptq", str(stored), bits, columns)


_PARSERS: Mapping[str, Callable[[Config], Quantization]] = {
    "awq": _awq,
    _COMPRESSED: _compressed_tensors,
    "gptq": _gptq,
    "fp8": _fp8,
}
