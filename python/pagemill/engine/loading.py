"""From a configuration to a running engine, and the facts of its model that front ends need."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from pagemill.config import ConfigError, EngineConfig, HeadFiles
from pagemill.config.model import ModelConfig
from pagemill.engine.core import EngineCore
from pagemill.engine.draft_model import build_draft, open_head, states_for
from pagemill.engine.executor_sizes import weights_dtype
from pagemill.engine.generation_config import choose_defaults
from pagemill.engine.media_adapters import with_media_adapters
from pagemill.engine.messages import ModelFacts
from pagemill.engine.model_source import open_model
from pagemill.engine.model_weights import ModelWeights
from pagemill.engine.nodes import require_nodes
from pagemill.engine.sampling import SamplingDefaults
from pagemill.inputs.task import Task
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.stages import Stage
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

_POOLINGS = {"auto": None, "cls": "first", "last": "last", "mean": "mean", "splade": "splade"}
DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"
_MAX_RANKS = 64  # kMaxRanks in cc/comm/group.h


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that runs. `names[0]` is the one in responses."""

    source: ModelSource
    core: EngineCore
    weights: ModelWeights
    names: tuple[str, ...]
    defaults: SamplingDefaults
    max_tokens_cap: int | None
    """Bound on generated tokens that the operator set."""
    max_adapters: int
    """`ModelFacts.max_adapters`."""
    hf_overrides: dict[str, Any]
    """Keys of the configuration that the operator replaced."""


def load(config: EngineConfig, stopped: threading.Event | None = None) -> LoadedModel:
    """Finds (or fetches) the model, builds its program and starts its engine. Once `stopped` is
    set, other ranks are not waited for.

    Raises:
        ConfigError: the configuration does not fit the model or the machine.
        FetchError, WeightsError, ModelConfigError: the model cannot be found, read or built.
        StatusError: the program cannot be bound.
        EngineError: another rank could not start, or `stopped` was set before all had.
    """
    if config.nodes.node_rank:
        raise ConfigError(
            f"--node-rank {config.nodes.node_rank} is for `pagemill serve`: here, run node 0"
        )
    model = config.model
    source, stored, at_load = open_model(model, build_options(model))
    config = with_media_adapters(config, stored)
    head = open_head(config)
    built, *others = build_ranks(source, config, head)
    draft = build_draft(source, built, config, head)
    chosen = choose_defaults(model, stored)
    core = EngineCore.create(
        built, config, weights_dtype(source.config), others, draft, source, stopped
    )
    try:
        weights = ModelWeights(
            core.engine,
            built,
            stored,
            source,
            at_load=at_load,
            head=head,
            folder=model.weight_transfer_dir,
            others=others,
        )
    except WeightsError as error:
        core.engine.shutdown()
        core.close_ranks()
        raise ConfigError(f"--weight-transfer-dir: {error}") from error
    return LoadedModel(
        source=source,
        core=replace(core, bindings=replace(core.bindings, weights=weights)),
        weights=weights,
        names=model_names(model),
        defaults=structs.replace(
            chosen.defaults,
            logprobs_mode=model.logprobs_mode,
            watermarks=bool(config.watermark.watermark_key_file),
        ),
        max_tokens_cap=chosen.max_tokens_cap,
        max_adapters=config.lora.slots,
        hf_overrides=model.hf_overrides,
    )


def model_names(model: ModelConfig) -> tuple[str, ...]:
    """The names of the configured model; the first is the one in responses."""
    return model.served_model_name or (model.model or DEFAULT_MODEL_NAME,)


def model_facts(loaded: LoadedModel) -> ModelFacts:
    """The facts of `loaded` that front ends need."""
    built = loaded.core.built
    return ModelFacts(
        names=tuple(loaded.names),
        path=str(loaded.source.path),
        hf_overrides=loaded.hf_overrides,
        max_model_len=built.max_model_len,
        vocab_size=built.vocab_size,
        pooled=built.pooled,
        eos_token_ids=tuple(built.eos_token_ids),
        defaults=loaded.defaults,
        max_tokens_cap=loaded.max_tokens_cap,
        max_choices=loaded.core.max_choices,
        max_unfinished=loaded.core.max_unfinished,
        max_item_tokens=loaded.core.max_item_tokens,
        embeds_width=built.embeds_width,
        encoder_text=built.encoder_text,
        max_adapters=loaded.max_adapters,
        routed_experts=built.routed_experts,
        alignment=built.alignment,
    )


def build_ranks(
    source: ModelSource, config: EngineConfig, head: HeadFiles | None = None
) -> tuple[BuiltModel, ...]:
    """The program of each rank of the configuration, usually of one, with the states that `head`
    reads. Rank 0, which samples, and the others of its tensor-parallel group have the last stage of
    a pipeline; the ranks behind them have the stages from the first on.

    Raises:
        ConfigError: the options need one rank.
        WeightsError, ModelConfigError, ValueError: the model cannot be built, or not divided.
    """
    _require_dividable(config)
    if config.model.enable_return_routed_experts:
        _require_whole_routing(config)
    executor = config.executor
    ranks, stages = executor.tensor_parallel_size, executor.pipeline_parallel_size
    states = states_for(head)
    options = build_options(config.model)
    if options.encoder_only and options.max_model_len is None:
        options = replace(options, max_model_len=config.scheduler.max_num_batched_tokens)
    options = replace(
        options,
        adapters=config.lora.enabled,
        draft_states=states,
        refused_media=config.refused_media,
        language_only=options.language_only or config.encoders_apart,
        media_embeds=options.media_embeds or config.encoders_apart,
    )
    whole_experts = config.executor.enable_expert_parallel
    order = [stages - 1, *range(stages - 1)]
    return tuple(
        build(
            source,
            replace(
                options,
                shard=Shard(rank, ranks, whole_experts=whole_experts),
                stage=Stage(stage, stages),
            ),
        )
        for stage in order
        for rank in range(ranks)
    )


def build_options(config: ModelConfig) -> BuildOptions:
    """How the configured model is built, on one rank."""
    return BuildOptions(
        max_model_len=config.max_model_len,
        task=None if config.task == "auto" else Task(config.task),
        pooling=_POOLINGS[config.pooling_type],
        implementation=config.model_impl,
        language_only=config.language_model_only,
        prompt_embeds=config.enable_prompt_embeds,
        media_embeds=config.enable_mm_embeds,
        encoder_only=config.mm_encoder_only,
        routed_experts=config.enable_return_routed_experts,
    )


def _require_dividable(config: EngineConfig) -> None:
    executor = config.executor
    sizes = {
        "--tensor-parallel-size": executor.tensor_parallel_size,
        "--pipeline-parallel-size": executor.pipeline_parallel_size,
    }
    for name, size in sizes.items():
        if size > 1 and executor.executor != "native":
            raise ConfigError(f"{name} {size} needs --executor native: no other executor has ranks")
    if executor.ranks > _MAX_RANKS:
        raise ConfigError(
            f"--tensor-parallel-size {executor.tensor_parallel_size} times"
            f" --pipeline-parallel-size {executor.pipeline_parallel_size} is {executor.ranks}"
            f" ranks, more than {_MAX_RANKS}"
        )
    if executor.pipeline_parallel_size > 1:
        _require_stages(config)
    require_nodes(config)


def _require_whole_routing(config: EngineConfig) -> None:
    """Refuses what keeps the engine's own process from the experts that all layers choose."""
    executor, flag = config.executor, "--enable-return-routed-experts"
    if executor.executor != "native":
        raise ConfigError(f"{flag} needs --executor native, not {executor.executor}")
    if executor.pipeline_parallel_size > 1:
        raise ConfigError(
            f"{flag} needs --pipeline-parallel-size 1: a stage knows the choices of its own"
            " layers only"
        )
    if executor.enable_expert_parallel:
        raise ConfigError(
            f"{flag} does not go with --enable-expert-parallel: a rank knows its own experts only"
        )


def _require_stages(config: EngineConfig) -> None:
    """Refuses what the stages of a pipeline cannot do yet."""
    refused = {
        "--speculative-config": config.speculation.max_tokens > 0,
        config.lora.flags: config.lora.enabled,
        "--kv-offloading-bytes, --kv-offloading-disk-path, --kv-connector-path and"
        " --kv-shared-memory-bytes": config.kv_tiers.enabled,
    }
    for names, given in refused.items():
        if given:
            raise ConfigError(
                f"{names} cannot be used with --pipeline-parallel-size"
                f" {config.executor.pipeline_parallel_size}: leave it out, or use"
                " --pipeline-parallel-size 1"
            )
