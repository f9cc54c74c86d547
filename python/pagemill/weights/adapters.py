"""Reads adapters in the format of PEFT: a folder with `adapter_config.json` and
`adapter_model.safetensors`.

    adapter = read_adapter(path)
    layers = adapter_layers(adapter, built.adapter_targets, source)   # for _native.make_adapter

LoRA, rsLoRA and DoRA of linear layers. What the format can say beyond that is refused: a checkpoint
whose weights were only partly used would answer wrongly without a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pagemill.weights.adapter_target import AdapterTarget
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_object, shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, read_bytes, read_f32
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import ModelSource

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_SUFFIXES = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_B.bias": "bias",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
}
_SHOWN = 5
_UNSUPPORTED = (
    "alora_invocation_tokens",
    "arrow_config",
    "eva_config",
    "layer_replication",
    "megatron_config",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
)

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[Any]
Layer = tuple[str, Matrix | None, Matrix | None, float, Floats | None, Floats | None]
"""Name in the program, lora_A, lora_B, scale, gain, offset."""


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """The tensors of one linear layer of the model and the factor of their product."""

    scale: float
    a: TensorLocation
    b: TensorLocation
    bias: TensorLocation | None = None
    magnitude: TensorLocation | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that was found, not read: its modules by the names of the model's layers."""

    path: Path
    modules: Mapping[str, AdapterModule]

    @property
    def rank(self) -> int:
        """The largest of its modules."""
        return max(module.a.shape[0] for module in self.modules.values())


def read_adapter(path: str | Path) -> Adapter:
    """The adapter in the folder `path`.

    Raises:
        WeightsError: a file is missing or corrupt, or the adapter needs what is not supported.
    """
    path = Path(path)
    config = read_object(path / CONFIG_FILE)
    _check_config(path, config)
    if not (path / WEIGHTS_FILE).is_file():
        raise WeightsError(f"{path} has no {WEIGHTS_FILE}; save the adapter as safetensors")
    found = _sort_tensors(path, read_file(path / WEIGHTS_FILE))
    modules: dict[str, AdapterModule] = {}
    for name, tensors in found.items():
        if "a" not in tensors or "b" not in tensors:
            raise WeightsError(f"{path}: {name} lacks lora_A or lora_B")
        rank = tensors["a"].shape[0] if len(tensors["a"].shape) == 2 else 0
        modules[name] = AdapterModule(_scale(path, config, name, rank), **tensors)
    if not modules:
        raise WeightsError(f"{path} has no tensors of LoRA")
    return Adapter(path, modules)


def adapter_layers(
    adapter: Adapter, targets: Sequence[AdapterTarget], source: ModelSource
) -> list[Layer]:
    """What `_native.make_adapter` takes, for the program whose targets these are; `source` is the
    model, whose weights DoRA needs.

    Raises:
        WeightsError: the adapter changes a layer that is not a target, or a shape does not fit.
    """
    by_module: dict[str, list[AdapterTarget]] = {}
    for target in targets:
        by_module.setdefault(target.module, []).append(target)
    unknown = sorted(set(adapter.modules) - set(by_module))
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise WeightsError(
            f"{adapter.path} changes layers that this model cannot adapt:"
            f" {', '.join(map(shown, unknown[:_SHOWN]))}{more}; adapters may change its linear"
            " layers, such as "
            f"{', '.join(list(by_module)[:2]) or 'none'}"
        )
    layers: list[Layer] = []
    for name, module in adapter.modules.items():
        layers += _module_layers(adapter, name, module, by_module[name], source)
    return layers


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise WeightsError(f"{path / CONFIG_FILE}: peft_type is {shown(kind)}; only LORA is served")
    for key in _UNSUPPORTED:
        if config.get(key):
            raise WeightsError(f"{path / CONFIG_FILE}: {key} is not supported")
    if config.get("bias", "none") != "none":
        raise WeightsError(
            f"{path / CONFIG_FILE}: bias is {shown(config['bias'])}; only none is supported"
        )
    if config.get("fan_in_fan_out") and config.get("use_dora"):
        raise WeightsError(f"{path / CONFIG_FILE}: DoRA of fan_in_fan_out is not supported")


def _sort_tensors(
    path: Path, tensors: Mapping[str, TensorLocation]
) -> dict[str, dict[str, TensorLocation]]:
    """The tensors by module and kind."""
    found: dict[str, dict[str, TensorLocation]] = {}
    for name, location in tensors.items():
        suffix = next((end for end in _SUFFIXES if name.endswith(end)), None)
        if suffix is None or not name.startswith(_PREFIX):
            raise WeightsError(
                f"{path / WEIGHTS_FILE}: the tensor {shown(name)} is not one of a linear layer's"
                " LoRA (base_model.model.<layer>.lora_A.weight, ...)"
            )
        if location.dtype not in REAL_DTYPES:
            raise WeightsError(
                f"{path / WEIGHTS_FILE}: {shown(name)} is {location.dtype}; expected"
                f" {', '.join(REAL_DTYPES)}"
            )
        module = name.removeprefix(_PREFIX).removesuffix(suffix)
        found.setdefault(module, {})[_SUFFIXES[suffix]] = location
    return found


def _scale(path: Path, config: Mapping[str, Any], module: str, rank: int) -> float:
    """alpha / rank, or alpha / sqrt(rank) of rsLoRA."""
    alpha = config.get("lora_alpha", 8)
    pattern: Any = config.get("alpha_pattern")
    if isinstance(pattern, dict):
        # PEFT reads keys as regular expressions of the end of a name; names are what it writes.
        for key, value in cast("dict[str, Any]", pattern).items():
            if module == key or module.endswith(f".{key}"):
                alpha = value
                break
            if re.escape(key).replace(r"\.", ".") != key:
                raise WeightsError(
                    f"{path / CONFIG_FILE}: alpha_pattern has {shown(key)}; only names of layers"
                    " are supported"
                )
    if type(alpha) not in (int, float) or not math.isfinite(alpha) or rank < 1:
        raise WeightsError(
            f"{path / CONFIG_FILE}: lora_alpha {shown(alpha)} of {module}, rank {rank}, is no scale"
        )
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _native(location: TensorLocation) -> Matrix:
    """As `_native.make_adapter` takes it: bf16 as uint16."""
    types = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}
    return np.array(read_bytes(location)).view(types[location.dtype]).reshape(location.shape)


def _module_layers(
    adapter: Adapter,
    name: str,
    module: AdapterModule,
    targets: Sequence[AdapterTarget],
    source: ModelSource,
) -> list[Layer]:
    a, b = _native(module.a), _native(module.b)
    gain = offset = None
    if module.bias is not None:
        offset = read_f32(module.bias).reshape(-1) * np.float32(module.scale)
    if module.magnitude is not None:
        if offset is not None:
            raise WeightsError(f"{adapter.path}: {name} has DoRA and a bias of lora_B")
        gain, offset = _dora(adapter, name, module, source)
        b = read_f32(module.b) * gain[:, None]
    layers: list[Layer] = []
    for target in targets:
        rows = slice(None)
        if target.rows is not None:
            if b.shape[0] != target.rows.total:
                raise WeightsError(
                    f"{adapter.path}: lora_B of {name} has {b.shape[0]} rows, the layer has"
                    f" {target.rows.total}"
                )
            rows = slice(target.rows.begin, target.rows.end)
        columns = slice(None)
        if target.columns is not None:
            columns = slice(target.columns.begin, target.columns.end)
        of_gain = None if gain is None else _dense(gain[rows])
        of_offset = None if offset is None else _dense(offset[rows])
        matrices = _dense(a[:, columns]), _dense(b[rows])
        layers.append((target.name, *matrices, module.scale, of_gain, of_offset))
    return layers


def _dense(array: Matrix) -> Matrix:
    return np.ascontiguousarray(array)


def _dora(
    adapter: Adapter, name: str, module: AdapterModule, source: ModelSource
) -> tuple[Floats, Floats | None]:
    """gain and offset: the layer's rows get the lengths that the adapter states, the bias stays."""
    if not source.has(f"{name}.weight"):
        raise WeightsError(
            f"{adapter.path} is DoRA, which needs the weight of {name} as one tensor; this model"
            " stores it otherwise"
        )
    assert module.magnitude is not None
    weight = read_f32(source.tensor(f"{name}.weight"))
    product = read_f32(module.b) @ read_f32(module.a)
    if product.shape != weight.shape or module.magnitude.shape[-1] != weight.shape[0]:
        raise WeightsError(
            f"{adapter.path}: {name} is {list(product.shape)}, the layer's weight"
            f" {list(weight.shape)}"
        )
    lengths = np.linalg.norm(weight + np.float32(module.scale) * product, axis=1)
    gain = read_f32(module.magnitude).reshape(-1) / lengths
    if not np.isfinite(gain).all():
        raise WeightsError(f"{adapter.path}: {name} has a row of length 0")
    if not source.has(f"{name}.bias"):
        return gain, None
    return gain, (1 - gain) * read_f32(source.tensor(f"{name}.bias")).reshape(-1)
