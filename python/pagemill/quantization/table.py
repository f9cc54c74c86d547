"""Quantization methods by the `quant_method` that a configuration names; imported at first use.

    method = method_of(source.config)
    method.scheme("model.layers.0.mlp.down_proj").name

To add a method, add a module to this package and an entry to `METHODS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from pagemill.config.plugins import load_plugin
from pagemill.quantization.base import Method
from pagemill.quantization.notes import UNCONVERTED
from pagemill.quantization.section import QuantizationError, Section
from pagemill.weights.json_file import shown
from pagemill.weights.source import OLDER_QUANTIZATION, QUANTIZATION, ModelSource

METHODS: dict[str, str] = {
    "auto-round": "pagemill.quantization.auto_round:AutoRound",
    "awq": "pagemill.quantization.awq:Awq",
    "bitsandbytes": "pagemill.quantization.bitsandbytes:BitsAndBytes",
    "compressed-tensors": "pagemill.quantization.compressed_tensors:CompressedTensors",
    "fbgemm_fp8": "pagemill.quantization.fp8:FbgemmFp8",
    "fp8": "pagemill.quantization.fp8:Fp8",
    "gptq": "pagemill.quantization.gptq:Gptq",
    "inc": "pagemill.quantization.auto_round:AutoRound",
    "intel/auto-round": "pagemill.quantization.auto_round:AutoRound",
    "modelopt": "pagemill.quantization.modelopt:ModelOpt",
    "modelopt_fp4": "pagemill.quantization.modelopt:ModelOpt",
    "modelopt_mixed": "pagemill.quantization.modelopt:ModelOpt",
    "modelopt_mxfp8": "pagemill.quantization.modelopt:ModelOpt",
    "mxfp4": "pagemill.quantization.mxfp4:Mxfp4",
    "mxfp8": "pagemill.quantization.fp8:Mxfp8",
    "ptpc_fp8": "pagemill.quantization.fp8:PtpcFp8",
    "quark": "pagemill.quantization.quark:Quark",
    "torchao": "pagemill.quantization.torchao:TorchAo",
}
# Names that other systems give to methods of checkpoints, by the kernels that they choose there.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "auto_awq": ("awq",),
    "auto_gptq": ("gptq",),
    "awq_marlin": ("awq",),
    "gptq_marlin": ("gptq",),
    "moe_wna16": ("awq", "gptq"),
}
# Methods of which matrices are converted before a program is built (`at_load.converted_source`);
# others of the same checkpoint may be used as they are stored.
CONVERTED = (
    *("auto-round", "bitnet", "bitsandbytes", "gptq", "hqq", "inc", "intel/auto-round"),
    *("quark", "torchao"),
)
# The name of the conversion of scales (`scaled.group_scales`), whatever the method.
GROUP_SCALES = "scales in bytes"
GROUP = "pagemill.quantization"
"""Entry points of other packages whose values are further methods."""
_UNQUANTIZED = "pagemill.quantization.unquantized:Unquantized"

_KEYS = (QUANTIZATION, OLDER_QUANTIZATION)
_BESIDE = "expert_dtype"  # a field of the section that some configurations have beside it


def source_method(source: ModelSource) -> Method:
    """The method that the configuration of `source` states.

    Raises:
        QuantizationError: see `method_of`; the message names the model.
    """
    try:
        return method_of(source.config)
    except QuantizationError as error:
        raise QuantizationError(f"{source.path}: {error}") from error


def method_of(config: Mapping[str, Any]) -> Method:
    """The method that `config` (a config.json, or its equivalent of a GGUF file) states.

    Raises:
        QuantizationError: it is not supported, or its part of the configuration makes no sense.
    """
    for key in _KEYS:
        entry = config.get(key)
        if entry is None:
            continue
        if not isinstance(entry, Mapping):
            raise QuantizationError(f"{key} is not an object")
        section = cast("Mapping[str, Any]", entry)
        name = section.get("quant_method")
        if name in CONVERTED and name not in METHODS:
            raise QuantizationError(
                f"{key}: the quant_method {shown(name)} is supported {UNCONVERTED}"
            )
        method = _method(name) if isinstance(name, str) else None
        if method is None:
            raise QuantizationError(
                f"{key}: the quant_method {shown(name)} is not supported;"
                f" supported: {', '.join(METHODS)}"
            )
        if config.get(_BESIDE) is not None:
            section = {_BESIDE: config[_BESIDE], **section}
        return method.from_section(Section(str(name), section))
    return _load(_UNQUANTIZED).from_section(Section("none"))


def _method(name: str) -> type[Method] | None:
    """The row of this name, or that of an installed package."""
    if name in METHODS:
        return _load(METHODS[name])
    found = load_plugin(GROUP, name)
    if found is not None and not isinstance(found, type):
        raise QuantizationError(f"the plugin {name} ({GROUP}) is no class of a Method")
    return found


def stated_method(config: Mapping[str, Any]) -> str | None:
    """The `quant_method` that `config` states, "" if it has a section without one; None if it says
    nothing of quantization."""
    for key in _KEYS:
        if config.get(key) is not None:
            if not isinstance(config[key], Mapping):
                return ""
            return str(cast("Mapping[str, Any]", config[key]).get("quant_method", ""))
    return None


def _load(target: str) -> type[Method]:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
