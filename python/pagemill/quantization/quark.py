"""AMD's Quark: int8 or e4m3 weights with scales per tensor, row or (e4m3) block, integers of 4 bits
in groups, and MXFP4. Modules that a wildcard names may have a scheme of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

from pagemill.quantization import fp4, packed, scaled
from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import WildcardNames
from pagemill.quantization.notes import (
    CACHE_SCALES,
    QUANTIZED_ACTIVATIONS,
    STATIC_ACTIVATIONS,
)
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

# What these change is part of the weights that they leave.
_ALGORITHMS = ("awq", "autosmoothquant", "gptaq", "gptq", "qronos", "smooth")
_8_BITS = {"fp8_e4m3": "f8_e4m3", "int8": "i8"}
_4_BITS = {name: name for name in ("fp4", "int4", "uint4")}
# Quark packs as AWQ does, under other names.
_PACKED_PARTS = ("weight", "weight_scale", "weight_zero_point", "weight_g_idx")
_MAX_MODULES = 1 << 10  # names with a scheme of their own
_IGNORED = ("input_scale", "input_zero_point")
_QUERIES = ("*q_proj",)


class Quark:
    """A module has the scheme of the first wildcard that names it, else that of all modules; none
    if it is excluded."""

    parts = frozenset(_PACKED_PARTS) | scaled.PARTS

    def __init__(
        self,
        scheme: Scheme,
        own: tuple[WildcardNames, Sequence[Scheme]],
        excluded: WildcardNames,
        notes: tuple[str, ...],
    ) -> None:
        self._scheme = scheme
        self._names, self._schemes = own
        self._excluded = excluded
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        _check_algorithms(section)
        export = section.section("export")
        stored = export.get("weight_format", "real_quantized")
        export.require("weight_format", stored, {"real_quantized": "real_quantized"})
        export.require("pack_method", export.get("pack_method", "reorder"), {"reorder": "reorder"})
        if section.section("layer_type_quant_config").entries:
            found = section.get("layer_type_quant_config")
            raise section.refuse("layer_type_quant_config", found, "none")
        cached = export.strings("kv_cache_group")
        notes = dict.fromkeys((CACHE_SCALES,) if cached else ())
        scheme, noted = _scheme(section.section("global_quant_config"))
        notes |= dict.fromkeys(noted)
        layers = section.section("layer_quant_config")
        if not layers.entries and section.get("global_quant_config") is None:
            raise section.refuse("global_quant_config", None, "an object")
        if len(layers.entries) > _MAX_MODULES:
            found = section.get("layer_quant_config")
            raise section.refuse("layer_quant_config", found, f"up to {_MAX_MODULES} names")
        schemes: list[Scheme] = []
        for name in layers.entries:
            # Queries, keys and values have scales of their results; those of keys and values serve
            # the cache.
            has_results = name in (*cached, *_QUERIES) and bool(cached)
            own, noted = _scheme(layers.section(name), has_results=has_results)
            schemes.append(own)
            notes |= dict.fromkeys(noted)
        names = WildcardNames(list(layers.entries))
        excluded = WildcardNames(section.strings("exclude"))
        return cls(scheme, (names, schemes), excluded, tuple(notes))

    def scheme(self, module: str) -> Scheme:
        if module in self._excluded:
            return UNQUANTIZED
        place = self._names.first(module)
        return self._scheme if place is None else self._schemes[place]

    def may_ignore(self, tensor: TensorLocation) -> bool:
        kind = tensor.name.rpartition(".")[2]
        return kind in _IGNORED or (kind == "weight_zero_point" and is_zero(tensor))


def _check_algorithms(section: Section) -> None:
    entries = section.get("algo_config")
    listed = cast("list[Any]", entries) if isinstance(entries, list) else [entries]
    for entry in listed:
        name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else entry
        known = name is None or (isinstance(name, str) and name.lower() in _ALGORITHMS)
        if not known:
            raise section.refuse("algo_config", name, ", ".join(_ALGORITHMS))


def _scheme(group: Section, *, has_results: bool = False) -> tuple[Scheme, tuple[str, ...]]:
    """The scheme of a group of modules, and its notes."""
    weight, x = _numbers(group, "weight"), _numbers(group, "input_tensors")
    if group.get("output_tensors") is not None and not has_results:
        raise group.refuse("output_tensors", "present", "those of keys and values alone")
    if group.get("bias") is not None:
        raise group.refuse("bias", "present", "none")
    if not weight.entries:
        return UNQUANTIZED, ()
    weight.require("is_dynamic", weight.get("is_dynamic", False), {False: "false"})
    dtype = weight.get("dtype")
    weight.require("dtype", dtype, {known: known for known in _8_BITS} | _4_BITS)
    if dtype in ("int4", "uint4"):
        return _packed(group, weight, x)
    if dtype == "fp4":
        weight.require("qscheme", weight.get("qscheme"), {"per_group": "per_group"})
        size = fp4.MXFP4_GROUP
        weight.require("group_size", weight.get("group_size"), {size: str(size)})
        weight.require("scale_format", weight.get("scale_format"), {"e8m0": "e8m0"})
        notes = (QUANTIZED_ACTIVATIONS,) if x.entries else ()
        return fp4.Fp4Scheme(), notes
    known = ["per_tensor", "per_channel", *(["per_block"] if dtype == "fp8_e4m3" else [])]
    weight.require("qscheme", weight.get("qscheme"), {name: name for name in known})
    if weight.get("qscheme") == "per_channel":
        weight.require("ch_axis", weight.get("ch_axis", 0), {0: "0"})
    if dtype == "int8":
        weight.require("symmetric", weight.get("symmetric", True), {True: "true"})
    block = weight.block("block_size") if weight.get("qscheme") == "per_block" else None
    if weight.get("qscheme") == "per_block" and block is None:
        raise weight.refuse("block_size", None, "two sizes, rows and columns")
    notes = ()
    if x.entries:
        x.require("dtype", x.get("dtype"), {dtype: str(dtype)})
        notes = () if x.get("is_dynamic") else (STATIC_ACTIVATIONS,)
    return scaled.ScaledScheme(group.method, _8_BITS[dtype], block, bool(x.entries)), notes


def _packed(group: Section, weight: Section, x: Section) -> tuple[Scheme, tuple[str, ...]]:
    weight.require("qscheme", weight.get("qscheme"), {"per_group": "per_group"})
    weight.require("ch_axis", weight.get("ch_axis", -1), {1: "1", -1: "-1"})
    kinds = {"int32": "int32"}
    weight.require("zero_point_type", weight.get("zero_point_type") or "int32", kinds)
    columns = weight.group("group_size", weight.get("group_size"))
    signed = weight.get("dtype") == "int4"
    scheme = packed.PackedScheme(
        group.method, "awq", 4, columns, zeros=not signed, names=_PACKED_PARTS, signed=signed
    )
    return scheme, (QUANTIZED_ACTIVATIONS,) if x.entries else ()


def _numbers(group: Section, name: str) -> Section:
    """How weights or activations are rounded: an object, or a list of one."""
    value = group.get(name)
    if isinstance(value, list):
        steps = cast("list[object]", value)
        if len(steps) != 1:
            raise group.refuse(name, steps, "one object")
        return Section(group.method, {name: steps[0]}, group.path).section(name)
    return group.section(name)
