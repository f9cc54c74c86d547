"""What follows from a configuration and a built model together: one rule for `serve` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig
from pagemill.config.env import cache_folder
from pagemill.config.memory import KvPages, available_memory_bytes, check_offloading
from pagemill.engine.stage_tables import StageTables
from pagemill.runner.build import BuiltModel
from pagemill.runner.fallback.module import MemoryPlan

# The coarsest type that activations may be rounded to, for each value of the option.
_ACTIVATION_DTYPES: Final[Mapping[str, Literal["f32", "bf16", "int8"]]] = {
    "auto": "bf16",
    "f32": "f32",
    "int8": "int8",
}
_ACTIVATION_TYPES: Final[Mapping[str, Literal["f32", "bf16", "f16"]]] = {
    "auto": "f32",
    "f32": "f32",
    "float32": "f32",
    "float": "f32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "f16": "f16",
    "float16": "f16",
    "half": "f16",
}
_KV_CACHE_DTYPES: Final[Mapping[str, Literal["bf16", "f32", "fp8", "int4", "int8", "k8v4"]]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "f32": "f32",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_ds_mla": "fp8",
    "int4": "int4",
    "int8": "int8",
    "k8v4": "k8v4",
}


_MAX_DRAFTING_SEQS: Final = 16
"""Requests of one step for whose drafts there are rows of logits. With more that decode, a step's
time grows with its tokens on a CPU, so that few drafts are worth it; a row of a large vocabulary
takes 0.6 MB."""

_MAX_WAITING: Final = 16
"""Tokens of a request that wait for a draft head (kMaxWaiting in cc/runner/draft_model.h)."""


@dataclass(frozen=True, slots=True)
class ExecutorSizes:
    """How large a step may get, in tokens and rows of logits, and what activations and the KV cache
    are made of."""

    max_num_tokens: int
    max_num_logits_rows: int
    activation_type: Literal["f32", "bf16", "f16"]
    kv_cache_dtype: Literal["bf16", "f32", "fp8", "int4", "int8", "k8v4"]
    device: _native.Device | None = None
    """None: the CPU."""
    stages: int = 1
    """Of a pipeline, each of which computes a step of its own."""

    @classmethod
    def of(
        cls,
        built: BuiltModel,
        config: EngineConfig,
        weights_dtype: str,
        device: _native.Device | None = None,
    ) -> ExecutorSizes:
        """The sizes for a model whose weights are of `weights_dtype` ("float32", ...), on `device`:
        the automatic type of activations is f32, and bf16 on a device; that of the KV cache is f32
        if the weights are and activations are not bf16, else bf16.

        Raises:
            ConfigError: the executor has no such KV cache.
        """
        tokens = config.scheduler.max_num_batched_tokens
        if not built.chunked_prefill:  # a prompt runs in one step, so a step holds the longest
            tokens = max(tokens, built.max_model_len)
        torch = config.executor.executor == "torch" or built.module is not None
        dtype = config.cache.kv_cache_dtype
        _check_kv_cache_dtype(dtype, built, torch=torch)
        activation_type = _ACTIVATION_TYPES[config.executor.dtype]
        if device is not None and config.executor.dtype == "auto":
            activation_type = "bf16"
        if dtype == "auto":
            is_f32 = activation_type != "bf16" and (weights_dtype == "float32" or torch)
            dtype = "f32" if is_f32 else "bf16"
        rows = config.scheduler.max_num_logits_rows
        rows += _num_draft_rows(config)
        stages = config.executor.pipeline_parallel_size
        return cls(tokens, rows, activation_type, _KV_CACHE_DTYPES[dtype], device, stages)

    def plan_ranks(self, ranks: Sequence[BuiltModel], config: EngineConfig) -> list[MemoryPlan]:
        """What the ranks take of one memory, with a KV cache of one page: that of this machine, of
        those that it has, or of the device of the rank that takes most."""
        plans = [self.plan(ranks[rank], config) for rank in config.local_ranks]
        if self.device is None:
            return plans
        return [max(plans, key=lambda plan: plan.total_bytes)]

    @property
    def steps_in_flight(self) -> int:
        """At most, enqueued and not collected."""
        return self.stages if self.device is None else 2

    def offloading_bytes(self, config: EngineConfig, plan: MemoryPlan) -> int:
        """What KV blocks outside the pool take of the memory that has the pool: nothing if that is
        a device's. `plan` is that of a rank.

        Raises:
            ConfigError: they and the weights that ranks read from there do not fit into the host's
                memory, beside a device's.
        """
        tiers = config.kv_tiers
        if self.device is None or not (tiers.host_bytes or plan.offloaded_bytes):
            return tiers.host_bytes
        available = host_memory_bytes(config)
        ranks = config.executor.tensor_parallel_size
        weights = plan.offloaded_bytes
        check_offloading(config.cache, weights, "--cpu-offload-gb", available // ranks)
        available -= ranks * weights
        check_offloading(config.cache, tiers.host_bytes, tiers.host_bytes_flag, available)
        return 0

    def executor_options(self, config: EngineConfig, num_blocks: int) -> _native.ExecutorOptions:
        """The native options with a cache of `num_blocks` blocks, the null block included."""
        return _native.ExecutorOptions(**self.option_arguments(config, num_blocks))

    def plan(self, built: BuiltModel, config: EngineConfig) -> MemoryPlan:
        """What `built` takes, with a KV cache of one page."""
        if built.module is None:
            options = self.executor_options(config, 1)
            if self.device is None:
                return _native.plan_memory(built.program_text, options)
            return _native.plan_on_device(
                self.device,
                built.program_text,
                options,
                max_model_len=built.max_model_len,
                vocab_size=built.vocab_size,
                max_adapter_rank=config.lora.max_lora_rank,
                offload_bytes=config.executor.offload_bytes,
            )
        rows = self.max_num_logits_rows if built.pooled is None else self.max_num_tokens
        return built.module.memory(
            dtype=self.activation_type,
            kv_dtype=self.kv_cache_dtype,
            block_size=config.cache.block_size,
            tokens=self.max_num_tokens,
            rows=rows,
            context=built.max_model_len,
        )

    def draft_options(
        self, built: BuiltModel, config: EngineConfig, num_blocks: int
    ) -> _native.ExecutorOptions:
        """Those of a draft model, whose KV lies on pages of `built`."""
        page_bytes = self.plan(built, config).kv_page_bytes
        arguments = self.option_arguments(config, num_blocks)
        # One of each request, or one for each draft of a step that verifies them.
        parallel = config.speculation.parallel
        rows = self.max_num_logits_rows if parallel else config.scheduler.max_num_seqs
        arguments |= {
            "max_num_logits_rows": rows,
            "kv_page_bytes": page_bytes,
            "max_adapters": 0,  # what it guesses is verified
        }
        if self.device is not None:
            arguments["kernel_filter"] = ""  # that kernel need not suit both models
        return _native.ExecutorOptions(**arguments)

    def plan_draft(
        self, built: BuiltModel, draft: BuiltModel, config: EngineConfig
    ) -> _native.MemoryPlan:
        """What a draft model takes besides pages of `built`."""
        options = self.draft_options(built, config, 1)
        if self.device is None:
            return _native.plan_memory(draft.program_text, options)
        return _native.plan_on_device(
            self.device,
            draft.program_text,
            options,
            max_model_len=built.max_model_len,
            vocab_size=min(built.vocab_size, draft.vocab_size),
            drafts=True,
        )

    def draft_executor(
        self,
        built: BuiltModel,
        draft: BuiltModel,
        options: _native.ExecutorOptions,
        host: _native.NativeExecutor | _native.DeviceExecutor,
    ) -> _native.NativeExecutor | _native.DeviceExecutor:
        """That of a draft model, with `draft_options`, beside the one of `built`."""
        if isinstance(host, _native.NativeExecutor):
            return _native.NativeExecutor(draft.program_text, options, host=host)
        assert self.device is not None
        return _native.DeviceExecutor(
            self.device,
            draft.program_text,
            options,
            max_model_len=built.max_model_len,
            vocab_size=min(built.vocab_size, draft.vocab_size),
            host=host,
        )

    def draft_host_bytes(self, built: BuiltModel, draft: BuiltModel, config: EngineConfig) -> int:
        """Bytes that drafts take of the host's memory, beside the KV cache if that is there: their
        distributions, float32 `[drafts of a step, vocab_size]`; for a head also the states of a
        step's tokens, twice, and of those that wait, and as many embeddings of media."""
        if self.device is not None:
            return 0
        distributions = 4 * _num_draft_rows(config) * built.vocab_size
        waiting = _MAX_WAITING + config.speculation.max_tokens
        rows = 2 * self.max_num_tokens + config.scheduler.max_num_seqs * waiting
        return distributions + 4 * rows * (draft.draft_states_width + draft.draft_media_width)

    def kv_groups(
        self, built: BuiltModel, config: EngineConfig, draft: BuiltModel | None = None
    ) -> list[_native.KvGroupOptions]:
        """The KV groups of the model, as the executor pages them, then those of its draft model."""
        if built.module is None and config.executor.executor == "native":
            groups = _native.kv_groups(built.program_text, self.executor_options(config, 1))
            if draft is not None:
                options = self.draft_options(built, config, 1)
                groups += _native.kv_groups(draft.program_text, options)
            return groups
        if built.module is not None:
            layout = built.module.layout
            return [
                _native.KvGroupOptions(
                    kind="sliding_window" if window else "full",
                    block_size=config.cache.block_size * times,
                    window_tokens=window,
                )
                for window, times in zip(layout.windows, layout.times, strict=True)
            ]
        # The torch executor gives each group a block table of its own.
        drafts, checkpoints = config.speculation.max_tokens, config.cache.enable_prefix_caching
        states = drafts + 1 if drafts or not checkpoints else 0
        return [
            _native.KvGroupOptions(
                kind=group.kind,
                window_tokens=group.window,
                checkpoints=checkpoints,
                recent_states=states if group.kind == "state_space" else 0,
            )
            for group in built.kv_groups
        ]

    def kv_tables(
        self, ranks: Sequence[BuiltModel], config: EngineConfig, draft: BuiltModel | None = None
    ) -> StageTables:
        """The KV groups of all stages, a draft model's last, and those of each rank; ranks that
        divide each layer alone have the same."""
        stages = ranks[:1] if self.stages == 1 else ranks
        return StageTables.of([self.kv_groups(stage, config, draft) for stage in stages])

    def kv_pages(
        self,
        ranks: Sequence[BuiltModel],
        config: EngineConfig,
        plans: Sequence[MemoryPlan],
        draft: BuiltModel | None = None,
    ) -> KvPages:
        """What requests take of the KV cache, whose pages all ranks have, in the memory of `plans`;
        with a draft model, its KV too."""
        groups = self.kv_tables(ranks, config, draft).groups
        sizes = {
            "block_size": config.cache.block_size,
            "max_step_tokens": self.max_num_tokens,
            "max_steps_in_flight": self.steps_in_flight,
        }

        def pages(tokens: int) -> int:
            return _native.max_kv_pages(groups=groups, num_tokens=tokens, **sizes) if groups else 0

        return KvPages(sum(plan.kv_page_bytes for plan in plans), pages)

    def option_arguments(self, config: EngineConfig, num_blocks: int) -> dict[str, Any]:
        """The arguments of `executor_options`, for another process to make them."""
        return {
            "num_threads": config.executor.threads,
            "max_num_tokens": self.max_num_tokens,
            "max_num_seqs": config.scheduler.max_num_seqs,
            "max_num_logits_rows": self.max_num_logits_rows,
            "num_blocks": num_blocks,
            "block_size": config.cache.block_size,
            "kv_cache_dtype": self.kv_cache_dtype,
            "activation_type": self.activation_type,
            "kernel_filter": config.executor.kernel_filter,
            "deterministic": config.executor.deterministic,
            "activation_dtype": _ACTIVATION_DTYPES[config.executor.activation_dtype],
            "pack_cache_folder": _pack_cache_folder(config),
            "place_memory": config.executor.numa == "auto",
            "max_adapters": config.lora.slots,
            "max_draft_tokens": config.speculation.max_tokens,
            "state_checkpoints": config.cache.enable_prefix_caching,
        }


def _check_kv_cache_dtype(dtype: str, built: BuiltModel, *, torch: bool) -> None:
    if dtype == "fp8_ds_mla" and not built.latent_kv:
        raise ConfigError(
            f"--kv-cache-dtype {dtype} is for models with latent attention alone: use fp8"
        )
    if dtype in ("int4", "int8", "k8v4") and built.latent_kv:
        raise ConfigError(f"--kv-cache-dtype {dtype} is not for latent attention: use fp8")
    if not torch or dtype not in _KV_CACHE_DTYPES or _KV_CACHE_DTYPES[dtype] in ("bf16", "f32"):
        return
    if _KV_CACHE_DTYPES[dtype] == "fp8" and built.latent_kv:
        return
    needed = "native support" if built.module is not None else "--executor native"
    raise ConfigError(f"--kv-cache-dtype {dtype} needs {needed}: torch has f32 or bf16")


def host_memory_bytes(config: EngineConfig) -> int:
    """What an engine may take of the host's memory, before `memory_utilization`."""
    share = config.share.memory_bytes
    return available_memory_bytes() if share is None else share


def _num_draft_rows(config: EngineConfig) -> int:
    seqs = min(config.scheduler.max_num_seqs, _MAX_DRAFTING_SEQS)
    return config.speculation.max_tokens * seqs


def _pack_cache_folder(config: EngineConfig) -> str:
    if not config.executor.pack_cache:
        return ""
    return str(cache_folder(config.model.cache_dir) / "packed")


def weights_dtype(model_config: Mapping[str, Any]) -> str:
    """The weights' type by the model's configuration; "bfloat16" if it has none."""
    for key in ("dtype", "torch_dtype"):
        value = model_config.get(key)
        if isinstance(value, str):
            return value
    return "bfloat16"
