"""The methods `fp8` and `fbgemm_fp8` of transformers, `ptpc_fp8` and `mxfp8`: e4m3 weights with a
scale per tensor, row or block. With `expert_dtype` fp4, which DeepSeek-V4 has beside the section of
`fp8`, experts are in MXFP4."""

from __future__ import annotations

from typing import Self

from pagemill.quantization.base import Scheme
from pagemill.quantization.fp4 import Fp4Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.notes import (
    CACHE_SCALES,
    QUANTIZED_ACTIVATIONS,
    STATIC_ACTIVATIONS,
)
from pagemill.quantization.scaled import MXFP8_GROUP, PARTS, ScaledScheme, mxfp8
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation

_EXPERTS = ".experts."
_IGNORED = (".input_scale", ".input_scale_ub")
_BOUND = (
    "the checkpoint's upper bound of the scales of activations (activation_scale_ub) is not used:"
    " no activation is cut off"
)


class Fp8:
    """One scheme for all modules except those listed as not converted, and perhaps another one for
    experts."""

    parts = PARTS

    def __init__(
        self,
        scheme: ScaledScheme,
        experts: Scheme,
        excluded: ModuleNames,
        notes: tuple[str, ...],
    ) -> None:
        self._scheme = scheme
        self._experts = experts
        self._excluded = excluded
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        section.require("fmt", section.get("fmt", "e4m3"), {"e4m3": "e4m3"})
        activations = section.get("activation_scheme", "dynamic")
        known = {"dynamic": "dynamic", "static": "static"}
        section.require("activation_scheme", activations, known)
        block = section.block("weight_block_size")
        scheme = ScaledScheme("fp8", "f8_e4m3", block, quantized_activations=True)
        names = _excluded(section)
        notes = (CACHE_SCALES,) if section.get("kv_cache_scheme") else ()
        notes += (STATIC_ACTIVATIONS,) if activations == "static" else ()
        experts = section.get("expert_dtype") or "fp8"
        section.require("expert_dtype", experts, {"fp8": "fp8", "fp4": "fp4"})
        if experts == "fp8":
            return cls(scheme, scheme, names, notes)
        return cls(scheme, Fp4Scheme(scales="scale"), names, notes)

    def scheme(self, module: str) -> Scheme:
        if module in self._excluded:
            return UNQUANTIZED
        return self._experts if _EXPERTS in module else self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        return tensor.name.endswith(_IGNORED)


class FbgemmFp8(Fp8):
    """With a scale per row, and a bound of the scales of activations."""

    @classmethod
    def from_section(cls, section: Section) -> Self:
        scheme = ScaledScheme(section.method, "f8_e4m3", None, quantized_activations=True)
        names = ModuleNames(section.strings("modules_to_not_convert"))
        notes = () if section.get("activation_scale_ub") is None else (_BOUND,)
        return cls(scheme, scheme, names, notes)


class PtpcFp8(Fp8):
    """With a scale per row; made for activations with a scale per token."""

    @classmethod
    def from_section(cls, section: Section) -> Self:
        dynamic = {"dynamic": "dynamic"}
        section.require("activation_scheme", section.get("activation_scheme", "dynamic"), dynamic)
        scheme = ScaledScheme(section.method, "f8_e4m3", None, quantized_activations=True)
        return cls(scheme, scheme, _excluded(section), ())


class Mxfp8(Fp8):
    """With a scale for 32 columns of a row, a power of two; made for activations of this kind."""

    @classmethod
    def from_section(cls, section: Section) -> Self:
        block = section.block("weight_block_size") or (1, MXFP8_GROUP)
        section.require("weight_block_size", block, {(1, MXFP8_GROUP): f"[1, {MXFP8_GROUP}]"})
        scheme = mxfp8(section.method)
        return cls(scheme, scheme, _excluded(section), (QUANTIZED_ACTIVATIONS,))


def _excluded(section: Section) -> ModuleNames:
    fields = ("modules_to_not_convert", "ignored_layers")
    return ModuleNames([entry for field in fields for entry in section.strings(field)])
