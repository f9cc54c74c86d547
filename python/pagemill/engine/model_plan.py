"""What a model takes and what fits, before anything of it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagemill.config import ConfigError, EngineConfig, ModelConfig
from pagemill.config.env import cache_folder
from pagemill.config.memory import KvBudget, KvPages

if TYPE_CHECKING:
    from pagemill import _native
    from pagemill.engine.executor_sizes import ExecutorSizes
    from pagemill.engine.generation_config import ChosenDefaults
    from pagemill.engine.media_adapters import MediaAdapter
    from pagemill.runner.build import BuiltModel
    from pagemill.weights.source import ModelSource

_SHORT = 256  # tokens of a request that no window has left


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A traced model, the program of each rank, and the options they would be bound with; a cache
    of one block. `config` is that of the engine, with the adapters of media that were found."""

    path: Path
    source: ModelSource
    ranks: tuple[BuiltModel, ...]
    sizes: ExecutorSizes
    options: _native.ExecutorOptions
    config: EngineConfig
    draft: BuiltModel | None = None

    @property
    def built(self) -> BuiltModel:
        """Rank 0's, the only one unless the model is divided."""
        return self.ranks[0]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The budget of one model under one configuration. Sizes in bytes, of all ranks together and of
    the draft model, if there is one.

    `kv` is None if the model does not fit, and `refusal` says why and what would help.
    """

    path: str
    architecture: str
    max_model_len: int
    weights: int
    packed: int
    offloaded: int
    """Further weights of a device, which are in the host's memory."""
    activations: int
    workspace: int
    logits: int
    adapters: Mapping[str, MediaAdapter]
    """Those under which requests with media run, by the kinds of these."""
    adapter_bytes: int
    offloading: int
    kv_pages: KvPages
    available: int
    limit: int
    largest_kv_pages: int
    kv: KvBudget | None
    refusal: str
    device: str
    """What runs it, and whose memory this is."""
    sampling: ChosenDefaults | None
    """What requests get that state nothing; None if the model generates no text."""

    @property
    def fixed(self) -> int:
        """Everything but the KV cache."""
        model = self.weights + self.activations + self.workspace + self.logits
        return model + self.adapter_bytes + self.offloading

    def concurrency(self, tokens: int) -> int:
        """How many requests of `tokens` tokens the KV cache holds at the same time."""
        pages = self.kv_pages.pages(tokens)
        return 0 if self.kv is None or not pages else (self.kv.num_blocks - 1) // pages

    @property
    def kv_per_token(self) -> int:
        """Bytes of the KV cache that each token of a short request takes."""
        return self.kv_pages.page_bytes * self.kv_pages.pages(_SHORT) // _SHORT

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        kv = self.kv
        return {
            "model": self.path,
            "architecture": self.architecture,
            "max_model_len": self.max_model_len,
            "device": self.device,
            "bytes": {
                "weights": self.weights,
                "weights_packed": self.packed,
                "weights_offloaded": self.offloaded,
                "activations": self.activations,
                "workspace": self.workspace,
                "logits": self.logits,
                "adapters": self.adapter_bytes,
                "kv_offloading": self.offloading,
                "kv_cache": kv.kv_bytes if kv else None,
                "total": self.fixed + kv.kv_bytes if kv else None,
                "kv_per_token": self.kv_per_token,
                "kv_per_longest_request": self.kv_pages.page_bytes
                * self.kv_pages.pages(self.max_model_len),
                "available": self.available,
                "limit": self.limit,
            },
            "kv_cache_tokens": kv.num_tokens if kv else None,
            "kv_cache_tokens_largest": self.kv_pages.tokens(max(0, self.largest_kv_pages - 1)),
            "fits": kv is not None,
            "media_adapters": {
                kind: {"path": str(each.path), "rank": each.rank}
                for kind, each in self.adapters.items()
            },
            "concurrency": self.concurrency(self.max_model_len),
            "refusal": self.refusal or None,
            "sampling_defaults": _sampling_json(self.sampling) if self.sampling else None,
        }


def model_path(model: ModelConfig) -> Path:
    """Returns where the configured model is, fetching it if need be."""
    from pagemill.weights.fetch import resolve

    folder = cache_folder(model.cache_dir)
    return resolve(model.model, cache_dir=folder, revision=model.revision, urls=True)


def known_model(config: EngineConfig) -> EngineConfig | None:
    """Returns `config` where its model can be looked at without fetching the default model."""
    from pagemill.weights.fetch import default_model_path, is_complete

    if config.model.model is not None:
        return config
    folder = cache_folder(config.model.cache_dir)
    return config if is_complete(default_model_path(folder)) else None


def built_model(config: EngineConfig) -> PlannedModel:
    """Traces the configured model. Reads headers, no weights.

    Raises:
      FetchError, WeightsError, ModelConfigError: there is no such model, or it is of a kind that is
        not supported.
    """
    from pagemill.engine.devices import choose_device
    from pagemill.engine.draft_model import build_draft, open_head
    from pagemill.engine.executor_sizes import ExecutorSizes, weights_dtype
    from pagemill.engine.loading import build_options, build_ranks
    from pagemill.engine.media_adapters import with_media_adapters
    from pagemill.engine.model_source import open_model

    source, stored, _ = open_model(config.model, build_options(config.model), values=False)
    config = with_media_adapters(config, stored)
    head = open_head(config)
    ranks = build_ranks(source, config, head)
    draft = build_draft(source, ranks[0], config, head, values=False)
    dtype = weights_dtype(source.config)
    device = choose_device(ranks[0], config, dtype, draft)
    sizes = ExecutorSizes.of(ranks[0], config, dtype, device)
    options = sizes.executor_options(config, num_blocks=1)
    return PlannedModel(stored.path, stored, ranks, sizes, options, config, draft)


def plan_model(config: EngineConfig) -> ModelPlan:
    """Returns the budget of the configured model. Reads headers, no weights.

    Raises:
      FetchError, WeightsError, ModelConfigError, StatusError: there is no such model, or it is of a
        kind that is not supported.
    """
    from pagemill.engine.devices import describe
    from pagemill.engine.engine_memory import EngineMemory
    from pagemill.engine.generation_config import choose_defaults
    from pagemill.engine.media_adapters import media_adapters

    model = built_model(config)
    path, built, config = model.path, model.built, model.config
    sampling = None if built.pooling else choose_defaults(config.model, model.source)
    memory = EngineMemory.of(model.ranks, config, model.sizes, model.draft)
    device, models = model.sizes.device, memory.models
    adapters = media_adapters(config)
    weights = sum(each.weights_bytes for each in models)
    activations = sum(each.activation_bytes for each in models) + memory.media.kept_bytes
    workspace = sum(each.workspace_bytes for each in models)
    logits = sum(each.output_bytes for each in models) + memory.draft_host_bytes
    for plan in memory.media.plans:
        weights += plan.weights_bytes
        workspace += plan.workspace_bytes
        # Activations, as the model sees it: an encoder's input and output.
        activations += plan.activation_bytes + plan.output_bytes
    refusal, offloading = "", 0
    kv: KvBudget | None = None
    try:
        offloading = memory.offloading_bytes()
        kv = memory.kv_budget()
    except ConfigError as error:
        refusal = str(error)
    available, pages = memory.available_bytes, memory.kv
    limit = int(available * config.cache.memory_utilization)
    room = max(0, limit - memory.fixed_bytes - offloading)
    largest = room // pages.page_bytes if pages.page_bytes else 0
    return ModelPlan(
        path=os.fspath(path),
        architecture=built.architecture,
        max_model_len=built.max_model_len,
        weights=weights,
        packed=sum(each.packed_bytes for each in models),
        offloaded=memory.ranks[0].offloaded_bytes,
        activations=activations,
        workspace=workspace,
        logits=logits,
        adapters=adapters,
        adapter_bytes=memory.adapter_bytes,
        offloading=offloading,
        kv_pages=pages,
        available=available,
        limit=limit,
        largest_kv_pages=largest,
        kv=kv,
        refusal=refusal,
        device="CPU" if device is None else describe(device),
        sampling=sampling,
    )


def _sampling_json(sampling: ChosenDefaults) -> dict[str, Any]:
    defaults = sampling.defaults
    return {
        "defaults": {**defaults.values(), "max_tokens": defaults.max_tokens},
        "origin": sampling.origin,
        "max_tokens_cap": sampling.max_tokens_cap,
    }
