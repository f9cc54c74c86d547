"""What an engine takes of a memory, and the KV cache that the rest has room for: one rule for
`serve`, for machines that follow it, and for `plan`.

    memory = EngineMemory.of(ranks, config, sizes, draft)
    budget = memory.kv_budget()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.config import EngineConfig
from pagemill.config.memory import FixedCosts, KvBudget, KvPages, plan_kv_cache
from pagemill.engine.encoder import MediaMemory, MediaSizes
from pagemill.engine.executor_sizes import ExecutorSizes, host_memory_bytes
from pagemill.engine.media_adapters import media_adapters
from pagemill.runner.build import BuiltModel
from pagemill.runner.fallback.module import MemoryPlan


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes in one memory: that of this machine, or of the device whose rank takes most. `ranks`
    are the plans of the ranks there, and `draft` that of the draft model, each with a KV cache of
    one page; `draft_host_bytes` are what its drafts take beside it; `media` is what encoders
    take, and `adapter_bytes` the adapters of media, which a device's host keeps; `kv` what requests
    take of the KV cache."""

    ranks: tuple[MemoryPlan, ...]
    draft: MemoryPlan | None
    draft_host_bytes: int
    media: MediaMemory
    adapter_bytes: int
    kv: KvPages
    max_model_len: int
    config: EngineConfig
    sizes: ExecutorSizes

    @classmethod
    def of(
        cls,
        ranks: Sequence[BuiltModel],
        config: EngineConfig,
        sizes: ExecutorSizes,
        draft: BuiltModel | None = None,
    ) -> EngineMemory:
        """Plans the programs of `ranks` and of the draft model of rank 0. Encoders run beside rank
        0 and count on its machine alone.

        Raises:
            StatusError: a program cannot be planned.
        """
        plans = sizes.plan_ranks(ranks, config)
        built, media = ranks[0], MediaMemory((), 0)
        if config.local_ranks.start == 0:
            media = MediaSizes.of(built, sizes, config).memory()
        return cls(
            tuple(plans),
            None if draft is None else sizes.plan_draft(built, draft, config),
            0 if draft is None else sizes.draft_host_bytes(built, draft, config),
            media,
            _adapter_bytes(config) if sizes.device is None else 0,
            sizes.kv_pages(ranks, config, plans, draft),
            built.max_model_len,
            config,
            sizes,
        )

    @property
    def models(self) -> tuple[MemoryPlan, ...]:
        """The plans of the ranks and of the draft model."""
        return self.ranks if self.draft is None else (*self.ranks, self.draft)

    @property
    def fixed_bytes(self) -> int:
        """All of it except the KV cache."""
        # The planner's one page is the null page.
        models = sum(plan.total_bytes - plan.kv_bytes for plan in self.models)
        return models + self.draft_host_bytes + self.media.total_bytes + self.adapter_bytes

    @property
    def available_bytes(self) -> int:
        """Of the memory, before `memory_utilization`."""
        device = self.sizes.device
        return host_memory_bytes(self.config) if device is None else device.free_bytes

    def offloading_bytes(self) -> int:
        """See `ExecutorSizes.offloading_bytes`.

        Raises:
            ConfigError: it does not fit.
        """
        return self.sizes.offloading_bytes(self.config, self.ranks[0])

    def kv_budget(self) -> KvBudget:
        """The KV cache to allocate.

        Raises:
            ConfigError: see `offloading_bytes` and `plan_kv_cache`.
        """
        flag = self.config.kv_tiers.host_bytes_flag
        return plan_kv_cache(
            self.config.cache,
            self.max_model_len,
            FixedCosts(self.fixed_bytes, self.kv, self.offloading_bytes(), flag),
            self.available_bytes,
            1 if self.sizes.device is None else self.config.scheduler.max_num_seqs,
        )


def _adapter_bytes(config: EngineConfig) -> int:
    """At most, on this machine: a rank has all of some matrices and a part of the others."""
    return len(config.local_ranks) * sum(each.bytes for each in media_adapters(config).values())
