"""NVIDIA's Model Optimizer: e4m3 weights with a scale per tensor, row or block, and NVFP4, one
algorithm for all modules or one for each. The settings are in config.json, or in
hf_quant_config.json as the object `quantization`, whose fields have other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Self

from pagemill.quantization.base import Scheme
from pagemill.quantization.fp4 import NVFP4_GROUP, Factor, Fp4Scheme
from pagemill.quantization.module_names import WildcardNames
from pagemill.quantization.notes import (
    CACHE_SCALES,
    QUANTIZED_ACTIVATIONS,
    STATIC_ACTIVATIONS,
)
from pagemill.quantization.scaled import MXFP8_GROUP, PARTS, ScaledScheme, mxfp8
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation

_METHOD = "modelopt"
_BLOCK = 128
_FP8 = ScaledScheme(_METHOD, "f8_e4m3", None, quantized_activations=True)
_FACTOR = "weight_scale_2"
_NVFP4 = Fp4Scheme(factor=Factor(_FACTOR))
_SCHEMES: Final[Mapping[str, Scheme]] = {
    "FP8": _FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": _FP8,
    "FP8_PB_WO": ScaledScheme(_METHOD, "f8_e4m3", (_BLOCK, _BLOCK)),  # activations as they are
    "MXFP8": mxfp8(_METHOD),
    "NVFP4": _NVFP4,
    "W4A16_NVFP4": _NVFP4,
}
_GROUPS = {
    "FP8_PB_WO": _BLOCK,
    "MXFP8": MXFP8_GROUP,
    "NVFP4": NVFP4_GROUP,
    "W4A16_NVFP4": NVFP4_GROUP,
}
_NOTES = {
    "FP8": (STATIC_ACTIVATIONS,),
    "MXFP8": (QUANTIZED_ACTIVATIONS,),
    "NVFP4": (QUANTIZED_ACTIVATIONS,),
}
_OF_ACTIVATIONS = (STATIC_ACTIVATIONS, QUANTIZED_ACTIVATIONS)
_MIXED = "MIXED_PRECISION"
_MAX_MODULES = 1 << 20  # with an algorithm of their own: a large model has 100,000


class ModelOpt:
    """A module has the scheme stated for it, or for the nearest module that it is part of, else the
    one of all modules; none if it is excluded."""

    parts = PARTS | {_FACTOR}

    def __init__(
        self,
        scheme: Scheme,
        own: Mapping[str, Scheme],
        excluded: WildcardNames,
        notes: tuple[str, ...],
    ) -> None:
        self._scheme = scheme
        self._own = own
        self._excluded = excluded
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        section = section.section("quantization") if section.get("quantization") else section
        excluded = ("ignore", "exclude_modules")
        names = [name for field in excluded for name in section.strings(field)]
        rounds = _rounds_activations(section)
        own: dict[str, Scheme] = {}
        algorithms: list[str] = []
        if _algorithm(section, (*_SCHEMES, _MIXED)) == _MIXED:
            modules = section.section("quantized_layers")
            if not 1 <= len(modules.entries) <= _MAX_MODULES:
                found = section.get("quantized_layers")
                raise section.refuse("quantized_layers", found, f"1 to {_MAX_MODULES} modules")
            for module in modules.entries:
                algorithm = _algorithm(modules.section(module), tuple(_SCHEMES))
                own[module] = _scheme(algorithm, rounds)
                algorithms.append(algorithm)
            scheme: Scheme = UNQUANTIZED
        else:
            algorithms = [_algorithm(section, tuple(_SCHEMES))]
            scheme = _scheme(algorithms[0], rounds)
        notes: dict[str, None] = {CACHE_SCALES: None} if _has_cache_scales(section) else {}
        for algorithm in algorithms:
            for note in _NOTES.get(algorithm, ()):
                if rounds or note not in _OF_ACTIVATIONS:
                    notes[note] = None
        return cls(scheme, own, WildcardNames(names), tuple(notes))

    def scheme(self, module: str) -> Scheme:
        if module in self._excluded:
            return UNQUANTIZED
        part = module
        while part:
            if part in self._own:
                return self._own[part]
            part = part.rpartition(".")[0]
        return self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        return tensor.name.endswith(".input_scale")


def _rounds_activations(section: Section) -> bool:
    """False if all groups of modules leave activations as they are."""
    groups = section.sections("config_groups")
    return not groups or any(group.get("input_activations") is not None for group in groups)


def _scheme(algorithm: str, rounds: bool) -> Scheme:
    scheme = _SCHEMES[algorithm]
    if isinstance(scheme, ScaledScheme) and not rounds:
        return replace(scheme, quantized_activations=False)
    return scheme


def _algorithm(section: Section, known: tuple[str, ...]) -> str:
    stated = section.get("quant_algo")
    name = stated.upper() if isinstance(stated, str) else stated
    if not isinstance(name, str) or name not in known:
        raise section.refuse("quant_algo", stated, ", ".join(known))
    if name in _GROUPS:
        size = _GROUPS[name]
        section.require("group_size", section.get("group_size"), {None: "none", size: str(size)})
    return name


def _has_cache_scales(section: Section) -> bool:
    """True if the checkpoint was made for a KV cache in fp8."""
    algorithm, scheme = section.get("kv_cache_quant_algo"), section.section("kv_cache_scheme")
    if isinstance(algorithm, str):
        algorithm = algorithm.upper() or None
    section.require("kv_cache_quant_algo", algorithm, {None: "none", "FP8": "FP8"})
    if scheme.entries:
        scheme.require("num_bits", scheme.get("num_bits"), {8: "8"})
        scheme.require("type", scheme.get("type"), {"float": "float"})
    return algorithm is not None or bool(scheme.entries)
