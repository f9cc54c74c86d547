"""The compressed-tensors library: int8 or e4m3 weights with scales per tensor, row or (e4m3) block;
packed integers of 4 or 8 bits with scales per row or group of columns; MXFP4, MXFP8 and NVFP4.
Groups of modules may have different schemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pagemill.quantization import fp4, packed, scaled
from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.notes import (
    CACHE_SCALES,
    QUANTIZED_ACTIVATIONS,
    STATIC_ACTIVATIONS,
)
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

_MXFP4, _NVFP4, _PACKED = "mxfp4-pack-quantized", "nvfp4-pack-quantized", "pack-quantized"
_MXFP8 = "mxfp8-quantized"
_FORMATS = ("float-quantized", "int-quantized", "naive-quantized", _MXFP4, _MXFP8, _NVFP4, _PACKED)
_FACTOR = "weight_global_scale"  # of NVFP4
_MAX_GROUPS = 64
_CLASS = "Linear"  # as a target, every linear layer that no other target names


class CompressedTensors:
    """A module has the scheme of the first target that names it, else of the first target that
    means all linear layers; none if it is in `ignore`. `targets` are pairs of a name or pattern and
    a scheme."""

    parts = frozenset(packed.PACK_PARTS) | scaled.PARTS | {_FACTOR}

    def __init__(
        self, targets: Sequence[tuple[str, Scheme]], ignored: ModuleNames, notes: tuple[str, ...]
    ) -> None:
        named = [target for target in targets if target[0] != _CLASS]
        self._names = ModuleNames([name for name, _ in named])
        self._schemes = [scheme for _, scheme in named]
        self._rest = next((scheme for name, scheme in targets if name == _CLASS), UNQUANTIZED)
        self._ignored = ignored
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        for name in ("sparsity_config", "transform_config"):
            value = section.section(name).entries
            if value and value.get("format") != "dense":
                raise section.refuse(name, dict(value), "none")
        groups = section.sections("config_groups")
        if not 1 <= len(groups) <= _MAX_GROUPS:
            found = section.get("config_groups")
            raise section.refuse("config_groups", found, f"1 to {_MAX_GROUPS} groups")
        targets: list[tuple[str, Scheme]] = []
        notes = {CACHE_SCALES: None} if section.get("kv_cache_scheme") else {}
        for group in groups:
            scheme, noted = _scheme(group, section)
            targets += [(target, scheme) for target in group.strings("targets", (_CLASS,))]
            notes |= dict.fromkeys(noted)
        return cls(targets, ModuleNames(section.strings("ignore")), tuple(notes))

    def scheme(self, module: str) -> Scheme:
        if module in self._ignored:
            return UNQUANTIZED
        target = self._names.first(module)
        return self._rest if target is None else self._schemes[target]

    def may_ignore(self, tensor: TensorLocation) -> bool:
        kind = tensor.name.rpartition(".")[2]
        if kind == "weight_zero_point":  # older versions write them for symmetric integers, too
            return is_zero(tensor)
        if kind == "bias":  # of GPTQ's matrices, converted
            return is_zero(tensor)
        return kind in ("input_scale", "input_global_scale", "input_zero_point", "weight_shape")


def _scheme(group: Section, section: Section) -> tuple[Scheme, tuple[str, ...]]:
    """The scheme of a group, and its notes."""
    stored = group.get("format") or section.get("format")
    section.require("format", stored, {known: known for known in _FORMATS})
    if group.get("output_activations") is not None:
        raise group.refuse("output_activations", "present", "none")
    readers = {_PACKED: _packed, _MXFP4: _mxfp4, _MXFP8: _mxfp8, _NVFP4: _nvfp4}
    return readers.get(stored, _scaled)(group)


def _scaled(group: Section) -> tuple[Scheme, tuple[str, ...]]:
    weights, activations = group.section("weights"), group.section("input_activations")
    _check_numbers(weights)
    integers = weights.get("type") == "int"
    strategies = {"tensor": "tensor", "channel": "channel"}
    if not integers:
        strategies["block"] = "block"
    strategy = weights.get("strategy")
    weights.require("strategy", strategy, strategies)
    if weights.get("symmetric", True) is not True:
        raise weights.refuse("symmetric", weights.get("symmetric"), "true")
    block = weights.block("block_structure") if strategy == "block" else None
    if strategy == "block" and block is None:
        raise weights.refuse("block_structure", None, "two sizes, rows and columns")
    notes: tuple[str, ...] = ()
    if activations.entries:
        _check_numbers(activations)
        if activations.get("type") != weights.get("type"):
            raise activations.refuse("type", activations.get("type"), weights.get("type"))
        if activations.get("dynamic", False) is False:
            notes = (STATIC_ACTIVATIONS,)
    dtype = "i8" if integers else "f8_e4m3"
    return scaled.ScaledScheme(group.method, dtype, block, bool(activations.entries)), notes


def _check_numbers(entry: Section) -> None:
    entry.require("type", entry.get("type"), {"int": "int", "float": "float"})
    entry.require("num_bits", entry.get("num_bits"), {8: "8"})


def _packed(group: Section) -> tuple[Scheme, tuple[str, ...]]:
    weights = group.section("weights")
    weights.require("type", weights.get("type"), {"int": "int"})
    strategy = weights.get("strategy")
    weights.require("strategy", strategy, {"channel": "channel", "group": "group"})
    bits = weights.bits("num_bits", weights.get("num_bits"), (4, 8))
    size = weights.get("group_size") if strategy == "group" else -1
    columns = weights.group("group_size", size)
    symmetric = weights.get("symmetric", True)
    weights.require("symmetric", symmetric, {True: "true", False: "false"})
    notes = (QUANTIZED_ACTIVATIONS,) if group.get("input_activations") else ()
    layout = "pack_quantized"
    return packed.PackedScheme(group.method, layout, bits, columns, not symmetric), notes


def _mxfp4(group: Section) -> tuple[Scheme, tuple[str, ...]]:
    notes = _check_floats(group, 4, "group", fp4.MXFP4_GROUP)
    return fp4.Fp4Scheme("weight_packed"), notes


def _mxfp8(group: Section) -> tuple[Scheme, tuple[str, ...]]:
    notes = _check_floats(group, 8, "group", scaled.MXFP8_GROUP)
    return scaled.mxfp8(group.method), notes


def _nvfp4(group: Section) -> tuple[Scheme, tuple[str, ...]]:
    notes = _check_floats(group, 4, "tensor_group", fp4.NVFP4_GROUP)
    factor = fp4.Factor(_FACTOR, divides=True)
    return fp4.Fp4Scheme("weight_packed", factor=factor), notes


def _check_floats(group: Section, bits: int, strategy: str, size: int) -> tuple[str, ...]:
    """Refuses what is not supported of floats of so many bits; returns the notes on activations."""
    weights = group.section("weights")
    weights.require("type", weights.get("type"), {"float": "float"})
    weights.require("num_bits", weights.get("num_bits"), {bits: str(bits)})
    weights.require("strategy", weights.get("strategy"), {strategy: strategy})
    weights.require("group_size", weights.get("group_size"), {size: str(size)})
    return (QUANTIZED_ACTIVATIONS,) if group.get("input_activations") else ()
