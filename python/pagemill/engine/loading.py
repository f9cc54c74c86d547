"""From a configuration to a running engine, and what its front ends need to know of the model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagemill.config import ConfigError, EngineConfig, ModelConfig
from pagemill.config.env import cache_folder
from pagemill.engine.core import EngineCore
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.engine.sampling import SamplingDefaults
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.fetch import resolve
from pagemill.weights.source import ModelSource

DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"
_GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that runs. `names[0]` is the one in responses."""

    source: ModelSource
    core: EngineCore
    names: tuple[str, ...]
    defaults: SamplingDefaults
    max_tokens_cap: int | None
    """Bound on generated tokens that the operator set."""


def load(config: EngineConfig) -> LoadedModel:
    """Finds (or fetches) the model, builds its program and starts its engine.

    Raises:
        ConfigError: the configuration does not fit the model or the machine.
        FetchError, WeightsError, ModelConfigError: the model cannot be found, read or built.
        StatusError: the program cannot be bound.
    """
    model = config.model
    path = resolve(model.model, cache_dir=cache_folder(model.cache_dir), revision=model.revision)
    source = ModelSource.open(path)
    built, *others = build_ranks(source, config)
    defaults, cap = sampling_defaults(model, source)
    return LoadedModel(
        source=source,
        core=EngineCore.create(built, config, weights_dtype(source.config), others),
        names=model.served_model_name or (model.model or DEFAULT_MODEL_NAME,),
        defaults=defaults,
        max_tokens_cap=cap,
    )


def build_ranks(source: ModelSource, config: EngineConfig) -> tuple[BuiltModel, ...]:
    """The program of each rank of the configuration's tensor-parallel group, usually of one.

    Raises:
        WeightsError, ModelConfigError, ValueError: the model cannot be built, or not divided.
    """
    ranks, length = config.executor.tensor_parallel_size, config.model.max_model_len
    return tuple(
        build(source, BuildOptions(max_model_len=length, shard=Shard(rank, ranks)))
        for rank in range(ranks)
    )


def sampling_defaults(
    model: ModelConfig, source: ModelSource
) -> tuple[SamplingDefaults, int | None]:
    """What an unstated sampling field means, and the operator's cap on generated tokens.

    Precedence: `override_generation_config`, then the file that `generation_config` names. The
    model's own `max_new_tokens` is a default; one that the operator chose is a cap as well.

    Raises:
        ConfigError: a file that was asked for cannot be used.
    """
    stated: dict[str, Any] = {}
    if model.generation_config == "auto":
        if source.kind == "hf":
            stated = _read(source.path / _GENERATION_CONFIG, required=False)
    elif model.generation_config != "none":
        stated = _read(Path(model.generation_config) / _GENERATION_CONFIG, required=True)
    chosen = dict(model.override_generation_config)
    if model.generation_config not in ("auto", "none"):
        chosen = {**stated, **chosen}
    defaults = SamplingDefaults.from_generation_config({**stated, **chosen})
    return defaults, SamplingDefaults.from_generation_config(chosen).max_tokens


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    if not required and not path.is_file():
        return {}
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--generation-config: {path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--generation-config: {path} is not a JSON object")
    return cast(dict[str, Any], content)
