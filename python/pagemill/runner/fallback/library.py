"""The models of `transformers`: their classes by architecture, without weights and with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.weights.errors import WeightsError

_SEED = 0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """A class of the library and the configuration of a model of it; `task` is what the class is
    for: GENERATE, or EMBED if it has no head."""

    model_class: type[PreTrainedModel]
    config: PretrainedConfig
    task: Task

    @classmethod
    def find(cls, config: Mapping[str, Any], task: Task | None) -> LibraryModel:
        """The class for a config.json: with the head of a language model if the architecture has
        one and `task` is not to embed.

        Raises:
            ModelConfigError: the library has none, or the task needs the head of a classifier.
        """
        model_type = config.get("model_type")
        if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
            raise ModelConfigError(
                f"transformers {transformers.__version__} has no model_type {model_type!r:.60},"
                " and Pagemill does not run code from a model's repository"
            )
        if task is not None and task.classifies:
            raise ModelConfigError(f"--task {task} is not supported by the fallback: use embed")
        if config.get("quantization_config") is not None:
            raise ModelConfigError(
                "the fallback to transformers reads weights in f32, bf16 and f16, not quantized"
                " ones: use a checkpoint without quantization_config"
            )
        made = CONFIG_MAPPING[model_type].from_dict(dict(config))
        generating = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
        stated = _architecture(config) or generating
        if generating is not None and stated == generating and task in (None, Task.GENERATE):
            return cls(getattr(transformers, generating), made, Task.GENERATE)
        if task is Task.GENERATE:
            raise ModelConfigError(
                f"{stated!s:.60} generates no text by the fallback to transformers; use --task"
                " embed, or a checkpoint of a causal language model"
            )
        base: object = MODEL_MAPPING_NAMES.get(model_type)
        if not isinstance(base, str):
            raise ModelConfigError(f"transformers has no encoder for model_type {model_type!r:.60}")
        return cls(getattr(transformers, base), made, task or Task.EMBED)

    @property
    def text_config(self) -> PretrainedConfig:
        """The configuration of the part that reads text."""
        return self.config.get_text_config(decoder=True)

    def without_weights(self, attention: str) -> PreTrainedModel:
        """The model on torch's device "meta", in bf16, which all of the library's kernels take."""
        with torch.device("meta"):
            return self._make(attention, torch.bfloat16)

    def random(self, attention: str, dtype: torch.dtype) -> PreTrainedModel:
        """The model with the random weights that the library starts training with; the same at
        each call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            return self._make(attention, dtype)

    def load(self, path: Path, attention: str, dtype: torch.dtype) -> PreTrainedModel:
        """The model with the weights of the safetensors in the directory `path`.

        Raises:
            WeightsError: a weight is missing, or of the wrong shape.
        """
        model_class: Any = self.model_class
        loaded, info = model_class.from_pretrained(
            path,
            config=self._configured(attention),
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
        missing = sorted(map(str, info["missing_keys"]))
        if missing:
            shown = ", ".join(missing[:_SHOWN])
            raise WeightsError(f"{path}: {len(missing)} weights are missing, such as {shown}")
        return _evaluated(loaded)

    def _make(self, attention: str, dtype: torch.dtype) -> PreTrainedModel:
        model_class: Any = self.model_class
        return _evaluated(model_class._from_config(self._configured(attention), dtype=dtype))

    def _configured(self, attention: str) -> PretrainedConfig:
        config: Any = copy.deepcopy(self.config)
        config._attn_implementation = attention
        return config


def _evaluated(model: torch.nn.Module) -> PreTrainedModel:
    """`model` as it runs when it is not trained."""
    evaluated = model.eval()
    assert isinstance(evaluated, PreTrainedModel)
    return evaluated


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return None
    return str(cast("list[object]", names)[0])
