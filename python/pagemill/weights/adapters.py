"""Reads adapters in the format of PEFT: a folder with `adapter_config.json` and
`adapter_model.safetensors`.

    adapter = read_adapter(path)
    (layers,) = adapter_layers(adapter, [built.adapter_targets], built.unread, source)

LoRA, rsLoRA and DoRA of linear layers and embeddings, LoRA of experts. What the format can say
beyond that is refused: a checkpoint whose weights were only partly used would answer wrongly
without a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pagemill.tensor.dtypes import BLOCK_DTYPES
from pagemill.weights.adapter_target import AdapterTarget
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import read_object, shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import REAL_DTYPES, as_f32, read_bytes, read_f32
from pagemill.weights.safetensors import read_file
from pagemill.weights.source import ModelSource

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_SUFFIXES = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_embedding_A": "embedding_a",
    ".lora_embedding_B": "embedding_b",
    ".lora_B.bias": "bias",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".base_layer.weight": "base",
}
# As training code saves a PEFT model's own state: each parameter has the name of its adapter.
_NAMED = re.compile(
    r"\.(?:lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?P<adapter>\.[^.]+)(?:\.weight|\.bias)?"
)
# PEFT nests what changes several parameters of one module.
_NESTED = ".base_layer"
_MOST_NESTED = 2
# What is in front of the layers of a language model that is part of a larger one.
_PARTS = re.compile(r"(?:(?:model|language_model|text_model)\.)*")
# What checkpoints call modules that `transformers` calls otherwise.
_RENAMED = {".block_sparse_moe.": ".mlp.", ".vision_model.": "."}
_MERGE = "merge the adapter into the model (PEFT's merge_and_unload) and serve that"
_ROWS_AT_ONCE = 4096
_ROUNDING = 2.0**-8  # bf16
_SHOWN = 5
_UNSUPPORTED = (
    "alora_invocation_tokens",
    "arrow_config",
    "eva_config",
    "layer_replication",
    "megatron_config",
    "trainable_token_indices",
)

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[Any]
Layer = tuple[str, int, Matrix | None, Matrix | None, float, Floats | None, Floats | None]
"""Name in the program, expert, lora_A, lora_B, scale, gain, offset."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The factors of products, as `adapter_config.json` states them; `patterns` by plain names."""

    alpha: float
    patterns: Mapping[str, float]
    root: bool

    def of(self, module: str, rank: int) -> float:
        """alpha / rank, or alpha / sqrt(rank) of rsLoRA."""
        alpha, module = self.alpha, _plain(module)
        for key, value in self.patterns.items():
            if module == key or module.endswith(f".{key}"):
                alpha = value
                break
        return alpha / (math.sqrt(rank) if self.root else rank)


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """The tensors of one module of the model: of a linear layer, an embedding, or the experts of a
    layer."""

    a: TensorLocation
    b: TensorLocation
    embedding: bool = False
    bias: TensorLocation | None = None
    magnitude: TensorLocation | None = None

    @property
    def rank(self) -> int:
        """Of all experts together."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that was found, not read: its modules by the names of the model's layers, and
    the weights of embeddings and heads that come with it, which are to be the model's."""

    path: Path
    modules: Mapping[str, AdapterModule]
    bases: Mapping[str, TensorLocation]
    scaling: Scaling
    stated_rank: int | None = None

    @property
    def rank(self) -> int:
        """What the configuration states, or the largest of its modules."""
        return self.stated_rank or max(module.rank for module in self.modules.values())

    @property
    def bytes(self) -> int:
        """What its matrices take in memory: those that are not bf16 become f32."""
        return sum(
            math.prod(matrix.shape) * (2 if matrix.dtype == "bf16" else 4)
            for module in self.modules.values()
            for matrix in (module.a, module.b)
        )


def _what_it_has(path: Path) -> str:
    """What a folder without an adapter is instead, for its refusal."""
    inner = sorted(found.parent.name for found in path.glob(f"*/{CONFIG_FILE}"))
    if inner:
        more = f" and {len(inner) - 3} more" if len(inner) > 3 else ""
        return f"; folders in it have: {', '.join(inner[:3])}{more}"
    if (path / "config.json").exists():
        return ", but a config.json: it is a whole model, to be served itself"
    return ""


def read_adapter(path: str | Path) -> Adapter:
    """The adapter in the folder `path`.

    Raises:
        WeightsError: a file is missing or corrupt, or the adapter needs what is not supported.
    """
    path = Path(path)
    if path.is_dir() and not (path / CONFIG_FILE).exists():
        raise WeightsError(f"{path} has no {CONFIG_FILE}{_what_it_has(path)}")
    config = read_object(path / CONFIG_FILE)
    _check_config(path, config)
    if not (path / WEIGHTS_FILE).is_file():
        raise WeightsError(f"{path} has no {WEIGHTS_FILE}; save the adapter as safetensors")
    found = _sort_tensors(path, read_file(path / WEIGHTS_FILE))
    bases = {name: tensors.pop("base") for name, tensors in found.items() if "base" in tensors}
    modules = {name: _module(path, name, rest) for name, rest in found.items() if rest}
    if not modules:
        raise WeightsError(f"{path} has no tensors of LoRA")
    rank = config.get("r")
    scaling = _scaling(path, config)
    stated = rank if type(rank) is int and rank > 0 else None
    return Adapter(path, modules, bases, scaling, stated)


def adapter_layers(
    adapter: Adapter,
    programs: Sequence[Sequence[AdapterTarget]],
    unread: Collection[str],
    source: ModelSource,
) -> list[list[Layer]]:
    """What `_native.make_adapter` takes, for each of the `programs`, whose targets these are.
    `unread` are modules that none of them has, as the last layer of a tower of which the one before
    is used: to change them changes nothing. `source` is the model, whose weights DoRA needs.

    Raises:
        WeightsError: the adapter changes a layer that is no target, or a shape does not fit.
    """
    targets = [target for program in programs for target in program]
    stored = {_plain(target.module): target.module for target in targets}
    for name, base in adapter.bases.items():
        _check_base(adapter, name, base, source, stored.get(_plain(name), name))
    names = _plain_names(adapter)
    used: set[str] = set()
    layers = [_program_layers(adapter, names, program, source, used) for program in programs]
    idle = set(map(_plain, unread))
    unknown = sorted(name for name in set(adapter.modules) - used if _plain(name) not in idle)
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        known = list(dict.fromkeys(target.module for target in targets))
        raise WeightsError(
            f"{adapter.path} changes layers that this model cannot adapt:"
            f" {', '.join(map(shown, unknown[:_SHOWN]))}{more}; adapters may change its linear"
            f" layers, such as {', '.join(known[:2]) or 'none'}; {_MERGE}"
        )
    return layers


def _program_layers(
    adapter: Adapter,
    names: Mapping[str, str],
    targets: Sequence[AdapterTarget],
    source: ModelSource,
    used: set[str],
) -> list[Layer]:
    """Those of one program; `names` are the adapter's by plain names, of which those in a target
    are added to `used`."""
    layers: list[Layer] = []
    for target in targets:
        for module, number in _modules_of(target):
            name = names.get(_plain(module))
            if name is None:
                continue
            used.add(name)
            if number is not None:
                layers.append(_layer(adapter, name, module, target, number, source))
        name = _fused_name(adapter, names, target)
        if name is not None:
            used.add(name)
            layers += _fused_layers(adapter, name, target)
    return layers


def _modules_of(target: AdapterTarget) -> list[tuple[str, int | None]]:
    """The names of a target's modules and their experts, counted from the first that the rank has;
    None: another rank has it."""
    layer = target.experts
    if layer is None:
        return [(target.module, 0)]
    own, total = layer.experts.indices, range(layer.experts.total)
    return [(layer.expert(i), own.index(i) if i in own else None) for i in total]


def _plain(name: str) -> str:
    """The name of a module of a language model without what differs between checkpoints and the
    versions of `transformers` that adapters were trained with: `layers.0.self_attn.q_proj` for
    `language_model.model.layers.0.self_attn.q_proj`, `model.language_model.layers.0...`, ..."""
    name = _PARTS.sub("", name, count=1)
    for old, new in _RENAMED.items():
        name = name.replace(old, new)
    return name


def _plain_names(adapter: Adapter) -> dict[str, str]:
    """The names of the adapter's modules by their plain ones."""
    names: dict[str, str] = {}
    for name in adapter.modules:
        if names.setdefault(_plain(name), name) != name:
            raise WeightsError(
                f"{adapter.path} changes one layer as {names[_plain(name)]} and as {name}"
            )
    return names


def _fused_name(adapter: Adapter, names: Mapping[str, str], target: AdapterTarget) -> str | None:
    """The name of the module that has this target for all experts; None if there is none. Which
    parameter a nested module changes is found by its shape."""
    experts = target.experts
    if experts is None:
        return None
    fits: list[str] = []
    for owner in dict.fromkeys([_plain(experts.owner), _plain(experts.container)]):
        for depth in range(_MOST_NESTED + 1):
            name = names.get(owner + depth * _NESTED)
            if name is None:
                continue
            module = adapter.modules[name]
            sizes = module.a.shape[1], module.b.shape[0]
            if sizes[:: -1 if experts.turned else 1] == (experts.features, experts.rows.total):
                fits.append(name)
    if len(fits) > 1:
        raise WeightsError(
            f"{adapter.path}: which parameters of {experts.owner} it changes cannot be told from"
            " their shapes"
        )
    return fits[0] if fits else None


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise WeightsError(f"{path / CONFIG_FILE}: peft_type is {shown(kind)}; only LORA is served")
    for key in _UNSUPPORTED:
        if config.get(key):
            raise WeightsError(f"{path / CONFIG_FILE}: {key} is not supported")
    saved = config.get("modules_to_save")
    if saved:
        listed = cast("list[Any]", saved) if isinstance(saved, list) else [saved]
        names = ", ".join(map(shown, listed))
        raise WeightsError(
            f"{path / CONFIG_FILE}: modules_to_save has {names}: whole layers beside the adapter,"
            f" which are not supported; train them as target_modules, or {_MERGE}"
        )
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
    for name, location in _without_adapter(path, tensors).items():
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


def _without_adapter(
    path: Path, tensors: Mapping[str, TensorLocation]
) -> dict[str, TensorLocation]:
    """The tensors by names without that of the adapter."""
    plain: dict[str, TensorLocation] = {}
    adapters: set[str] = set()
    for name, location in tensors.items():
        at = name.rfind(".lora_")
        named = None if name.endswith(tuple(_SUFFIXES)) else _NAMED.fullmatch(name, max(at, 0))
        if named is not None:
            adapters.add(named["adapter"][1:])
            name = name[: named.start("adapter")] + name[named.end("adapter") :]
        if name in plain:
            raise WeightsError(f"{path / WEIGHTS_FILE} has {shown(name)} twice")
        plain[name] = location
    if len(adapters) > 1:
        raise WeightsError(
            f"{path / WEIGHTS_FILE} has the weights of several adapters,"
            f" {', '.join(map(shown, sorted(adapters)[:_SHOWN]))}: save each in a folder of its own"
        )
    return plain


def _module(path: Path, name: str, tensors: dict[str, TensorLocation]) -> AdapterModule:
    embedding = "embedding_a" in tensors or "embedding_b" in tensors
    prefix = "embedding_" if embedding else ""
    a, b = tensors.pop(f"{prefix}a", None), tensors.pop(f"{prefix}b", None)
    if a is None or b is None or "a" in tensors or "b" in tensors:
        raise WeightsError(f"{path}: {name} lacks lora_A or lora_B")
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] < 1:
        raise WeightsError(f"{path}: lora_A or lora_B of {name} is no matrix")
    return AdapterModule(a, b, embedding, **tensors)


def _scaling(path: Path, config: Mapping[str, Any]) -> Scaling:
    pattern: Any = config.get("alpha_pattern")
    patterns = cast("dict[str, Any]", pattern) if isinstance(pattern, dict) else {}
    for key in patterns:
        # PEFT reads keys as regular expressions of the end of a name; names are what it writes.
        if re.escape(key).replace(r"\.", ".") != key:
            raise WeightsError(
                f"{path / CONFIG_FILE}: alpha_pattern has {shown(key)}; only names of layers"
                " are supported"
            )
    alpha = config.get("lora_alpha", 8)
    for value in (alpha, *patterns.values()):
        if type(value) not in (int, float) or not math.isfinite(value):
            raise WeightsError(f"{path / CONFIG_FILE}: lora_alpha {shown(value)} is not a number")
    plain = {_plain(key): value for key, value in patterns.items()}
    return Scaling(float(alpha), plain, bool(config.get("use_rslora")))


def _native(location: TensorLocation) -> Matrix:
    """As `_native.make_adapter` takes it: bf16 as uint16."""
    types = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}
    return np.array(read_bytes(location)).view(types[location.dtype]).reshape(location.shape)


def _layer(
    adapter: Adapter,
    name: str,
    stored: str,
    target: AdapterTarget,
    number: int,
    source: ModelSource,
) -> Layer:
    """The part of the adapter's module `name` that is in `target`; `stored` is the module's name in
    `source`."""
    module = adapter.modules[name]
    if module.embedding != target.embedding:
        kind = "an embedding" if target.embedding else "a linear layer"
        raise WeightsError(f"{adapter.path}: {name} is {kind} in this model")
    scale = adapter.scaling.of(name, module.rank)
    a, b = _native(module.a), _native(module.b)
    gain = offset = None
    if module.bias is not None:
        offset = read_f32(module.bias).reshape(-1) * np.float32(scale)
    if module.magnitude is not None:
        if offset is not None:
            raise WeightsError(f"{adapter.path}: {name} has DoRA and a bias of lora_B")
        gain, offset = _dora(adapter, stored, module, module.magnitude, scale, source)
        b = read_f32(module.b) * gain[:, None]
    if target.rows is not None and b.shape[0] != target.rows.total:
        raise WeightsError(
            f"{adapter.path}: lora_B of {name} has {b.shape[0]} rows, the layer has"
            f" {target.rows.total}"
        )
    rows = slice(None) if target.rows is None else slice(target.rows.begin, target.rows.end)
    columns = slice(None)
    if target.columns is not None:
        columns = slice(target.columns.begin, target.columns.end)
        if target.columns.begin > 0:
            offset = None  # added once to the sum of all parts
    return (
        target.name,
        number,
        _dense(a[:, columns]),
        _dense(b[rows]),
        scale * target.scale,
        None if gain is None else _dense(gain[rows]),
        None if offset is None else _dense(offset[rows]),
    )


def _fused_layers(adapter: Adapter, name: str, target: AdapterTarget) -> list[Layer]:
    """The layers of all experts, of a module whose lora_A is [experts * rank, in] and lora_B
    [out, rank * experts], experts innermost; with in and out the other way round if the parameter
    is turned."""
    module, layer = adapter.modules[name], target.experts
    assert layer is not None
    count, own = layer.experts.total, layer.experts
    if module.rank % count or module.b.shape[1] != module.rank:
        raise WeightsError(
            f"{adapter.path}: lora_A of {name} has {module.rank} rows and lora_B"
            f" {module.b.shape[1]} columns, not a multiple of {count} experts"
        )
    if module.bias is not None or module.magnitude is not None or module.embedding:
        raise WeightsError(f"{adapter.path}: {name} has more than lora_A and lora_B of its experts")
    rank = module.rank // count
    scale = adapter.scaling.of(f"{layer.owner}.{layer.parameter}", rank)
    a = _native(module.a).reshape(count, rank, -1)
    b = _native(module.b).reshape(-1, rank, count).transpose(2, 0, 1)
    if layer.turned:
        a, b = b.transpose(0, 2, 1), a.transpose(0, 2, 1)
    b = b[:, layer.rows.begin : layer.rows.end : layer.step]
    if target.columns is not None:
        a = a[:, :, target.columns.begin : target.columns.end]
    return [
        (target.name, i - own.begin, _dense(a[i]), _dense(b[i]), scale, None, None)
        for i in own.indices
    ]


def _check_base(
    adapter: Adapter, name: str, base: TensorLocation, source: ModelSource, stored: str
) -> None:
    """The weight that comes with the adapter is the model's, whose module is `stored`; how a
    quantized model rounds it cannot be told."""
    if not source.has(f"{stored}.weight"):
        return
    own = source.tensor(f"{stored}.weight")
    differs = base.shape != own.shape
    if not differs and own.dtype in REAL_DTYPES:
        portions = zip(_portions(own), _portions(base), strict=True)
        differs = not all(
            np.allclose(ours, theirs, rtol=_ROUNDING, atol=0) for (_, ours), (_, theirs) in portions
        )
    if differs:
        raise WeightsError(
            f"{adapter.path} comes with a weight of {name} that is not this model's; serve the"
            " model that it was trained on"
        )


def _portions(matrix: TensorLocation) -> Iterator[tuple[slice, Floats]]:
    """Some rows after others, and their values: a head in f32 may have gigabytes."""
    rows, width = matrix.shape
    stored = read_bytes(matrix).reshape(rows, -1)
    for begin in range(0, rows, _ROWS_AT_ONCE):
        part = slice(begin, min(begin + _ROWS_AT_ONCE, rows))
        shape = (part.stop - begin, width)
        yield part, as_f32(matrix.dtype, shape, stored[part].reshape(-1))


def _dense(array: Matrix) -> Matrix:
    return np.ascontiguousarray(array)


def _dora(
    adapter: Adapter,
    name: str,
    module: AdapterModule,
    magnitude: TensorLocation,
    scale: float,
    source: ModelSource,
) -> tuple[Floats, Floats | None]:
    """gain and offset: what makes each of the layer's outputs, rows of its weight or columns of an
    embedding's, gets the length that the adapter states; the bias stays."""
    if not source.has(f"{name}.weight"):
        raise WeightsError(
            f"{adapter.path} is DoRA, which needs the weight of {name} as one tensor; this model"
            " stores it otherwise"
        )
    weight = source.tensor(f"{name}.weight")
    if weight.dtype not in (*REAL_DTYPES, *BLOCK_DTYPES):
        raise WeightsError(
            f"{adapter.path} is DoRA, which needs the weight of {name} without scales; this model"
            f" stores it as {weight.dtype}"
        )
    a, b = read_f32(module.a), read_f32(module.b) * np.float32(scale)
    left, right = (a.T, b.T) if module.embedding else (b, a)
    shape = (left.shape[0], right.shape[1])
    if shape != weight.shape or magnitude.shape[-1] != b.shape[0]:
        raise WeightsError(
            f"{adapter.path}: {name} is {list(shape)}, the layer's weight {list(weight.shape)}"
        )
    squares = np.zeros(b.shape[0], np.float32)
    for part, values in _portions(weight):
        changed = np.square(values + left[part] @ right)
        if module.embedding:
            squares += changed.sum(axis=0)
        else:
            squares[part] = changed.sum(axis=1)
    lengths: Floats = np.sqrt(squares)
    gain: Floats = read_f32(magnitude).reshape(-1) / lengths
    if not np.isfinite(gain).all():
        raise WeightsError(f"{adapter.path}: {name} has a row of length 0")
    if not source.has(f"{name}.bias"):
        return gain, None
    return gain, (1 - gain) * read_f32(source.tensor(f"{name}.bias")).reshape(-1)
