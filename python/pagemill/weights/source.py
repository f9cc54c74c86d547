"""One opened model on disk, with the same interface for a GGUF file and a Hugging Face directory.

    source = ModelSource.open("SmolLM2-135M-Instruct.Q4_1.gguf")
    source.config["num_hidden_layers"]                            # as config.json would say it
    source.tensor("model.layers.0.self_attn.q_proj.weight").dtype # "q4_1"

Reads only headers and configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, ValuesView
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pagemill.tensor.dtypes import DTYPES, tensor_bytes
from pagemill.weights.beside_config import keys_beside
from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.gguf_config import config_from_gguf
from pagemill.weights.gguf_split import open_model
from pagemill.weights.heads import HEADS, read_heads
from pagemill.weights.json_file import read_object
from pagemill.weights.location import TensorLocation
from pagemill.weights.names import as_used, gguf_names, layer_name
from pagemill.weights.pooling import Pooling, gguf_pooling, read_pooling
from pagemill.weights.published_names import as_layers_use
from pagemill.weights.safetensors import read_directory, read_file

QUANTIZATION = "quantization_config"
OLDER_QUANTIZATION = "compression_config"  # compressed-tensors before 0.8
# How a decoder begins, for which generation_config.json has precedence.
_STARTS = ("decoder_start_token_id", "forced_bos_token_id")
_HEADS = ("lm_head.", "score.", "classifier.", "linear.", *HEADS)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The locations of a model's weights and configuration; keeps no file open.

    `kind` is "gguf" or "hf"; `config` has the shape of `config.json` for both (see
    `gguf_config.config_from_gguf`), with `eos_token_id` a list of all tokens that end a text.
    """

    kind: str
    path: Path
    config: Mapping[str, Any]
    gguf: GgufFile | None
    pooling: Pooling | None
    _tensors: Mapping[str, TensorLocation]

    @classmethod
    def open(
        cls,
        path: str | Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        tensors: bool = True,
    ) -> ModelSource:
        """Read headers and configuration; no weights. `overrides` replace keys of the
        configuration; objects are merged key by key. Without `tensors`, a directory need not have
        any.

        Raises:
            WeightsError: `path` is neither a GGUF file nor a directory of safetensors with a
                config.json, or one of its files is corrupt.
            OSError: a file cannot be read.
        """
        path = Path(path).absolute()
        if path.is_dir():
            config = _directory_config(path, overrides or {})
            pooling = read_pooling(path)
            found = _directory_tensors(path, config, pooling) if tensors else {}
            return cls("hf", path, config, None, pooling, found)
        if not path.exists():
            raise WeightsError(f"{path} does not exist")
        gguf = open_model(path)
        config = _merged(config_from_gguf(gguf), overrides or {})
        ends = sorted(_token_ids(config.get("eos_token_id")))
        pooling = gguf_pooling(path, gguf.metadata)
        return cls("gguf", path, config | {"eos_token_id": ends}, gguf, pooling, gguf.tensors)

    def with_weights(self, path: str | Path) -> ModelSource:
        """The same model, configuration and all, with the tensors of another checkpoint: a
        directory of safetensors, or a GGUF file if this is one. Reads headers; no weights.

        Raises:
            WeightsError: there is no such checkpoint, or one of its files is corrupt.
            OSError: a file cannot be read.
        """
        path = Path(path).absolute()
        if self.gguf is None:
            if not path.is_dir():
                raise WeightsError(f"{path} is no directory of safetensors, as the model is")
            found = _directory_tensors(path, self.config, self.pooling)
            return replace(self, path=path, _tensors=found)
        if not path.is_file():
            raise WeightsError(f"{path} is no GGUF file, as the model is")
        gguf = open_model(path)
        return replace(self, path=path, gguf=gguf, _tensors=gguf.tensors)

    def with_file(self, path: Path) -> ModelSource:
        """The same model, configuration and all, with the tensors of a safetensors file.

        Raises:
            WeightsError: it is corrupt.
            OSError: it cannot be read.
        """
        return replace(self, _tensors=read_file(path))

    def with_tensors(
        self, tensors: Mapping[str, TensorLocation], changes: Mapping[str, Any]
    ) -> ModelSource:
        """The same model with these tensors, by name, and with `changes` of its configuration."""
        return replace(self, config={**self.config, **changes}, _tensors=tensors)

    def with_replaced(self, tensors: Mapping[str, TensorLocation]) -> ModelSource:
        """The same model with these tensors, by the names that layers use, among its own."""
        return replace(self, _tensors={**self._tensors, **tensors})

    def replaceable(self, tensors: Mapping[str, TensorLocation]) -> dict[str, TensorLocation]:
        """Tensors of a file that may take the places of those of this model, by the names that
        layers use. The file has names, types and shapes of a checkpoint of the model.

        Raises:
            WeightsError: this is no directory's model, or one has no such name, type and shape.
        """
        if self.gguf is not None:
            raise WeightsError(
                f"{self.path} is a GGUF file, whose tensors have formats of its own: single tensors"
                " can replace those of safetensors only"
            )
        named = dict(as_layers_use(self.config.get("model_type"), tensors))
        for name, tensor in named.items():
            own = self._tensors.get(name)
            if own is None or own.dtype not in DTYPES:
                raise WeightsError(f"{tensor.name!r:.200} is no tensor of {self.path}")
            if (tensor.dtype, tensor.shape) != (own.dtype, own.shape):
                raise WeightsError(
                    f"{tensor.name!r:.200} is {_type_of(tensor)}, but the tensor of {self.path} is"
                    f" {_type_of(own)}"
                )
        return named

    def with_prefix(self, prefix: str) -> ModelSource:
        """The same model, with `prefix` in front of the names of tensors if none has it: that of a
        checkpoint without a head, whose names lack the module that a head stands beside."""
        if self.gguf is not None or any(name.startswith(prefix) for name in self._tensors):
            return self
        named = {
            tensor.name: tensor
            for tensor in (
                replace(tensor, name=_with_prefix(name, prefix))
                for name, tensor in self._tensors.items()
            )
        }
        return replace(self, _tensors=named)

    @property
    def architecture(self) -> str:
        """The first of the configuration's architectures, e.g. "LlamaForCausalLM".

        Raises:
            WeightsError: the configuration names none.
        """
        names = self.config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise WeightsError(f"{self.path}: the configuration names no architecture")
        return names[0]

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return tuple(self.config["eos_token_id"])

    @property
    def tensors(self) -> ValuesView[TensorLocation]:
        """Every tensor, with its stored name."""
        return self._tensors.values()

    @property
    def parameters(self) -> int:
        """The approximate number of parameters: each 32-bit word counts as eight of 4 bits."""
        return sum(
            math.prod(tensor.shape) * (8 if tensor.dtype == "i32" else 1) for tensor in self.tensors
        )

    @property
    def stored_bytes(self) -> int:
        """What its tensors take in their files, except those of types that no layer uses."""
        return sum(tensor_bytes(t.dtype, t.shape) for t in self.tensors if t.dtype in DTYPES)

    def has(self, name: str) -> bool:
        """True if there is a tensor of this (Hugging Face) name."""
        return self._find(name) is not None

    def tensor(self, name: str) -> TensorLocation:
        """The location of the tensor of this (Hugging Face) name.

        Raises:
            MissingTensorError: the model has none.
        """
        location = self._find(name)
        if location is None:
            raise MissingTensorError(f"{self.path}: the tensor {name!r} is missing")
        return location

    def name_of(self, tensor: TensorLocation) -> str:
        """The (Hugging Face) name of one of `tensors`; the stored one if it has no other."""
        if self.gguf is None:
            return tensor.name
        return layer_name(self.config["model_type"], tensor.name)

    def _find(self, name: str) -> TensorLocation | None:
        if self.gguf is None:
            return self._tensors.get(name)
        architecture = self.config["model_type"]
        for stored in gguf_names(architecture, name):
            if stored in self._tensors:
                return as_used(architecture, name, self._tensors[stored])
        return None


def _type_of(tensor: TensorLocation) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"


def _with_prefix(name: str, prefix: str) -> str:
    return name if name.startswith(_HEADS) else prefix + name


def _directory_tensors(
    directory: Path, config: Mapping[str, Any], pooling: Pooling | None
) -> dict[str, TensorLocation]:
    tensors = as_layers_use(config.get("model_type"), read_directory(directory))
    return {**tensors, **read_heads(directory, pooling)}


def _directory_config(directory: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    stored = read_object(directory / "config.json")
    elsewhere = _quantization_elsewhere(directory, stored) | keys_beside(directory, stored)
    path = directory / "generation_config.json"
    generation = read_object(path) if path.exists() else {}
    starts = {key: generation[key] for key in _STARTS if generation.get(key) is not None}
    config = _merged(stored | elsewhere | starts, overrides)
    ends = _token_ids(config.get("eos_token_id"))
    for part in ("text_config", "llm_config", "decoder"):  # of a model with a language model
        text = config.get(part)
        if isinstance(text, dict):
            ends |= _token_ids(cast("dict[str, object]", text).get("eos_token_id"))
    ends |= _token_ids(generation.get("eos_token_id"))
    return config | {"eos_token_id": sorted(ends)}


def _quantization_elsewhere(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The `quantization_config` of a directory whose config.json has none of the whole model: that
    of the language model that it contains, or of a file which ModelOpt writes beside it."""
    if any(config.get(key) is not None for key in (QUANTIZATION, OLDER_QUANTIZATION)):
        return {}
    text = config.get("text_config")
    inner = cast("Mapping[str, Any]", text).get(QUANTIZATION) if isinstance(text, Mapping) else None
    if inner is not None:
        return {QUANTIZATION: inner}
    path = directory / "hf_quant_config.json"
    if not path.exists():
        return {}
    return {QUANTIZATION: {"quant_method": "modelopt", **read_object(path)}}


def _merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for key, value in overrides.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value))
        merged[key] = value
    return merged


def _token_ids(value: object) -> set[int]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return {number for number in values if type(number) is int}
