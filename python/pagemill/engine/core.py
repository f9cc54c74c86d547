"""A built model and a configuration become a running native engine.

core = EngineCore.create(built, config, weights_dtype="bfloat16")
core.bindings.engine.submit(...)
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, KvTierConfig, SpeculationConfig
from pagemill.config.env import cache_folder
from pagemill.config.memory import KvBudget, KvPages, with_blocks
from pagemill.config.quantities import format_bytes
from pagemill.engine.adapter_reader import AdapterReader
from pagemill.engine.adapters import Adapters
from pagemill.engine.devices import choose_device
from pagemill.engine.encoder import EncoderSizes, MediaSizes
from pagemill.engine.encoder_front import Front, MediaFront, TextFront
from pagemill.engine.engine_memory import EngineMemory
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.native import NativeBindings
from pagemill.engine.nodes import Nodes
from pagemill.engine.outputs import EngineError
from pagemill.engine.peer_addresses import all_resolved, resolved
from pagemill.engine.ranks import RankDevice, RankWorkers, stages_of
from pagemill.engine.secret_file import read_secret
from pagemill.engine.watermark import load_watermark
from pagemill.runner.build import BuiltModel
from pagemill.runner.fallback.module import BuiltModule, MemoryPlan
from pagemill.structured.compiler import GrammarCompiler
from pagemill.weights.source import ModelSource

_LOGGER = logging.getLogger("pagemill.engine")
_OUTPUT_INTERVAL_US = 5_000
# What a grammar leaves no choice about is seldom longer: the name of a function and its keys.
_MAX_FORCED_TOKENS = 16
"""Less than a reader of a stream sees; longer than the steps of a small model with one request,
each of which would lose a core to the thread that wakes up for one token."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


@dataclass(frozen=True, slots=True)
class EngineCore:
    """A running engine: `bindings` is how clients talk to it, `budget` the KV cache it got.

    `runner` is the engine's own; benchmarks read its profile between requests.
    """

    built: BuiltModel
    bindings: NativeBindings
    engine: _native.Engine
    runner: _native.ModelRunner
    budget: KvBudget
    max_choices: int
    """Requests that the engine holds when it is otherwise idle."""
    max_unfinished: int
    """Requests that run or wait, at most."""
    max_item_tokens: int
    """Of one image or another item; 0: the model takes no media."""
    workers: RankWorkers | None = None
    """The other ranks, if there are several."""
    host_bytes: int = 0
    """The host's memory that it may use, with KV pages that no request has filled yet."""

    def check(self) -> None:
        """Looks whether the engine can still run steps.

        Raises:
            EngineError: another rank has ended.
        """
        if self.workers is not None:
            self.workers.check()

    def close_ranks(self) -> None:
        """Ends the other ranks; to be called after the engine's shutdown. Idempotent."""
        if self.workers is not None:
            self.workers.stop()

    @classmethod
    def create(
        cls,
        built: BuiltModel,
        config: EngineConfig,
        weights_dtype: str,
        others: Sequence[BuiltModel] = (),
        draft: BuiltModel | None = None,
        source: ModelSource | None = None,
        stopped: threading.Event | None = None,
    ) -> EngineCore:
        """Sizes the KV cache, binds the program to this machine and starts the engine's thread.

        Args:
            built: the model's program.
            config: everything about the engine.
            weights_dtype: what the model's configuration says its weights are ("float32", ...);
                decides the KV cache's type if the configuration does not.
            others: what the other ranks run if the model is divided among several.
            draft: the model that guesses tokens for `built`, if one does.
            source: the model's files, which adapters are read beside; None: no adapters.
            stopped: once it is set, other ranks are not waited for.

        Raises:
            ConfigError: the model does not fit; the message has the numbers and the flags.
            StatusError: the program cannot be bound, or a KV tier cannot be created.
            EngineError: another rank could not start, or `stopped` was set before all had.
        """
        if config.lora.enabled:
            _require_adaptable(built, config, source)
        device = choose_device(built, config, weights_dtype, draft)
        wanted = ExecutorSizes.of(built, config, weights_dtype, device)
        memory = EngineMemory.of((built, *others), config, wanted, draft)
        plan = memory.ranks[0]
        if draft is not None and memory.draft is not None:
            _LOGGER.info("draft model %s: %s", draft.architecture, _weights(memory.draft))
        budget = memory.kv_budget()
        workers: RankWorkers | None = None
        if others:
            workers = _start_workers((built, *others), config, wanted, budget, plan, stopped)
            budget = _agreed(budget, memory.kv, workers)
        _say(built, plan, budget)
        host_bytes = budget.total_bytes
        if device is not None:
            host_bytes = config.kv_tiers.host_bytes + len(memory.ranks) * plan.offloaded_bytes
        try:
            core = cls._start(built, config, wanted, budget, workers, draft, source, others)
            return replace(core, host_bytes=host_bytes)
        except BaseException:
            if workers is not None:
                workers.stop()
            raise

    @classmethod
    def _start(
        cls,
        built: BuiltModel,
        config: EngineConfig,
        wanted: ExecutorSizes,
        budget: KvBudget,
        workers: RankWorkers | None,
        draft: BuiltModel | None,
        source: ModelSource | None,
        others: Sequence[BuiltModel],
    ) -> EngineCore:
        world = None if workers is None else workers.world
        media = MediaSizes.of(built, wanted, config)
        ranks = (built, *others)
        stages = stages_of(ranks, config, wanted)
        groups = wanted.kv_tables(ranks, config, draft).groups
        limits = _limits(built, config, wanted, budget.num_blocks, groups, media)
        if workers is not None and wanted.device is not None:
            workers.wait_joined()  # the executor meets those of the other ranks
        try:
            executor = _executor(built, config, wanted, limits, world)
        except _native.StatusError:
            if workers is not None:
                workers.check()  # says which rank has ended
            raise
        if workers is not None:
            workers.wait_ready()
        ngram = config.speculation.ngram
        sizes = None if ngram is None else (ngram.min_match, ngram.max_match)
        executors, drafting = [executor], None
        if draft is not None:
            assert not isinstance(executor, _native.PythonExecutor)  # build_draft() requires it
            options = wanted.draft_options(built, config, budget.num_blocks)
            drafting = wanted.draft_executor(built, draft, options, executor)
            executors.append(drafting)
        store = _native.AdapterStore() if config.lora.enabled else None
        encoders = [_encoder_executor(each, wanted, config, executor) for each in media.encoders]
        runner = _native.ModelRunner(
            executor,
            limits,
            ngram_sizes=sizes,
            suffix_options=_suffix_options(config.speculation),
            draft_executor=drafting,
            **_draft_arguments(draft),
            encoders=[
                (own, each.native()) for own, each in zip(encoders, media.encoders, strict=True)
            ],
            text_rows=media.text_rows,
            item_ends=media.item_ends,
            encoder_ends=media.encoder_ends,
            adapters=store,
            stage=stages[0].native() if stages else None,
            page_segment=None if workers is None else workers.page_segment,
            world=world,
            watermark=load_watermark(config.watermark),
        )
        tiers = _kv_tiers(executors, workers, config.kv_tiers, config.executor.threads)
        engine = _native.Engine(runner, _options(config, tiers, wanted), log=_log)
        grammars = GrammarCompiler(back_end=config.model.structured_outputs_backend)
        adapters: Adapters | None = None
        if store is not None:
            assert source is not None
            cache_dir = cache_folder(config.model.cache_dir)
            reader = AdapterReader(source, _adaptable(executor, *encoders), ranks, workers)
            adapters = Adapters(reader, engine, store, config.lora, cache_dir)
            for name, path in (*config.lora.modules, *config.lora.media.items()):
                _load_named(adapters, name, path)
        bindings = NativeBindings(engine, _native, grammars, adapters, front=_front(built))
        held = config.scheduler.max_num_queued_reqs
        unfinished = config.scheduler.max_num_seqs + held
        item = media.max_item_tokens if built.takes_media else 0
        held_choices = max(1, held)
        return cls(built, bindings, engine, runner, budget, held_choices, unfinished, item, workers)


def _adaptable(
    *executors: _native.NativeExecutor | _native.DeviceExecutor | _native.PythonExecutor,
) -> list[_native.NativeExecutor | _native.DeviceExecutor]:
    """All of them: `_require_adaptable` has refused others."""
    return [each for each in executors if not isinstance(each, _native.PythonExecutor)]


def _load_named(adapters: Adapters, name: str, path: str) -> None:
    try:
        adapters.load_adapter(name, path)
    except EngineError as error:
        raise EngineError(error.code, f"Adapter `{name}`: {error.message}", error.param) from error


def _front(built: BuiltModel) -> Front | None:
    """See `NativeBindings`."""
    for traits in (encoder.traits for encoder in built.encoders):
        if traits.encoder_decoder:
            if traits.text is not None:
                return TextFront(traits.text)
            (kind,) = traits.placeholders
            return MediaFront(None if traits.any_size else traits.tokens, kind)
    return None


def _device_of_ranks(
    built: BuiltModel, config: EngineConfig, device: _native.Device | None
) -> RankDevice | None:
    if device is None:
        return None
    return RankDevice(
        device.vendor,
        device.index,
        built.max_model_len,
        built.vocab_size,
        config.lora.max_lora_rank,
        config.executor.offload_bytes,
    )


def _start_workers(
    ranks: Sequence[BuiltModel],
    config: EngineConfig,
    sizes: ExecutorSizes,
    budget: KvBudget,
    plan: MemoryPlan,
    stopped: threading.Event | None,
) -> RankWorkers:
    """The other ranks of this machine."""
    arguments = sizes.option_arguments(config, budget.num_blocks)
    nodes = Nodes.of(config, ranks, arguments, budget.num_blocks)
    local = config.local_ranks
    return RankWorkers.start(
        [ranks[rank].program_text for rank in local[1:]],
        arguments,
        _device_of_ranks(ranks[0], config, sizes.device),
        stages_of(ranks, config, sizes)[1 : local.stop],
        sizes.stages,
        plan.kv_page_bytes if sizes.stages == 1 and nodes is None else 0,
        nodes,
        stopped=stopped,
    )


def _agreed(budget: KvBudget, pages: KvPages, workers: RankWorkers) -> KvBudget:
    """`budget`, with the blocks for which all machines have memory if there are several."""
    if not isinstance(workers.world, _native.NodesWorld):
        return budget
    try:
        workers.wait_joined()
    except BaseException:
        workers.stop()
        raise
    return with_blocks(budget, pages, workers.world.number)


def _require_adaptable(built: BuiltModel, config: EngineConfig, source: ModelSource | None) -> None:
    if config.executor.executor != "native":
        raise ConfigError(f"{config.lora.flags} need --executor native")
    if not built.adapter_targets or source is None:
        raise ConfigError(f"{built.architecture} has no layers that adapters could change")


def _executor(
    built: BuiltModel,
    config: EngineConfig,
    sizes: ExecutorSizes,
    limits: _native.RunnerLimits,
    world: _native.World | None,
) -> _native.NativeExecutor | _native.DeviceExecutor | _native.PythonExecutor:
    num_blocks = max(1, limits.num_blocks)
    if sizes.device is not None:
        options = sizes.executor_options(config, num_blocks)
        return _native.DeviceExecutor(
            sizes.device,
            built.program_text,
            options,
            world,
            max_model_len=limits.max_model_len,
            vocab_size=limits.vocab_size,
            max_adapter_rank=config.lora.max_lora_rank,
            offload_bytes=config.executor.offload_bytes,
        )
    if built.module is not None:
        return _module_executor(built.module, sizes, num_blocks, config.cache.block_size)
    if config.executor.executor == "native":
        executor = _native.NativeExecutor(
            built.program_text, sizes.executor_options(config, num_blocks), world
        )
        if executor.pack_cache_damage:
            _LOGGER.warning("packed weights were written again: %s", executor.pack_cache_damage)
        if executor.pack_cache_error:
            _LOGGER.warning(
                "packed weights are not kept for the next start: %s (--no-pack-cache to say so)",
                executor.pack_cache_error,
            )
        if sizes.activation_type != "f32":
            _LOGGER.warning(
                "--dtype %s computes every operation with a plain kernel, many times slower than"
                " --dtype auto; it is for comparing results with those of a GPU",
                config.executor.dtype,
            )
        if executor.memory_placement:
            _LOGGER.info("memory of weights and KV cache: %s", executor.memory_placement)
        return executor
    return _torch_executor(built.program_text, sizes, num_blocks, config.cache.block_size)


def _encoder_executor(
    encoder: EncoderSizes,
    sizes: ExecutorSizes,
    config: EngineConfig,
    host: _native.NativeExecutor | _native.DeviceExecutor | _native.PythonExecutor,
) -> _native.NativeExecutor | _native.DeviceExecutor | _native.PythonExecutor:
    """The executor of an encoder of media, on the device or the threads of the model's, `host`."""
    text = encoder.encoder.program_text
    if sizes.device is not None:
        return _native.DeviceExecutor(
            sizes.device,
            text,
            encoder.executor_options(),
            max_model_len=encoder.encoder_tokens,
            vocab_size=encoder.vocab_size,
            max_adapter_rank=config.lora.max_lora_rank,
        )
    if isinstance(host, _native.NativeExecutor):
        return _native.NativeExecutor(text, encoder.executor_options(), host=host)
    return _torch_executor(text, sizes, num_blocks=1, block_size=1)


def _torch_executor(
    text: str, sizes: ExecutorSizes, num_blocks: int, block_size: int
) -> _native.PythonExecutor:
    if find_spec("torch") is None:
        raise ConfigError("--executor torch needs torch: `pip install torch`")
    # Imports torch, which serving natively must not.
    from pagemill.runner.torch_executor import TorchExecutor, TorchOptions

    options = TorchOptions(
        dtype=sizes.activation_type,
        kv_cache_dtype=sizes.kv_cache_dtype,
        num_blocks=num_blocks,
        block_size=block_size,
    )
    return _native.PythonExecutor(TorchExecutor(text, options))


def _module_executor(
    module: BuiltModule, sizes: ExecutorSizes, num_blocks: int, block_size: int
) -> _native.PythonExecutor:
    # Imports torch and transformers, which serving natively must not.
    from pagemill.runner.fallback.executor import ModuleExecutor, ModuleOptions

    options = ModuleOptions(
        dtype=sizes.activation_type,
        kv_cache_dtype=sizes.kv_cache_dtype,
        num_blocks=num_blocks,
        block_size=block_size,
    )
    return _native.PythonExecutor(ModuleExecutor(module, options))


def _kv_tiers(
    executors: Sequence[_native.NativeExecutor | _native.DeviceExecutor | _native.PythonExecutor],
    workers: RankWorkers | None,
    config: KvTierConfig,
    threads: int,
) -> _native.KvTierOptions:
    native = [each for each in executors if not isinstance(each, _native.PythonExecutor)]
    if config.enabled and not native:
        raise ConfigError(
            "--kv-offloading-bytes, --kv-offloading-disk-path, --kv-connector-path and"
            " --kv-shared-memory-bytes need --executor native: no other executor's KV can be copied"
            ", nor that of a model without native support"
        )
    return _native.KvTierOptions(
        host_bytes=config.kv_offloading_bytes or 0,
        disk_path=config.kv_offloading_disk_path,
        disk_bytes=config.kv_offloading_disk_bytes or 0,
        policy=config.kv_offloading_policy,
        connector_folder=config.kv_connector_path,
        connector_bytes=config.kv_connector_bytes,
        shared_memory_bytes=config.kv_shared_memory_bytes or 0,
        transfer_listen=resolved("--kv-transfer-listen", config.kv_transfer_listen)[0],
        transfer_peers=all_resolved("--kv-transfer-peers", config.kv_transfer_peers),
        transfer_secret=read_secret("--kv-transfer-secret-file", config.kv_transfer_secret_file),
        transfer_timeout_ms=config.kv_transfer_timeout_ms,
        num_step_threads=threads,
        fingerprint=(lambda: _fingerprint(native, workers)) if native else None,
    )


def _fingerprint(
    executors: Sequence[_native.NativeExecutor | _native.DeviceExecutor],
    workers: RankWorkers | None,
) -> str:
    """What pages are of: they hold the KV of all programs of all ranks."""
    own = "+".join(each.kv_fingerprint() for each in executors)
    return own if workers is None else ",".join([own, *workers.kv_fingerprints()])


def _say(built: BuiltModel, plan: MemoryPlan, budget: KvBudget) -> None:
    _LOGGER.info(
        "%s: %s, KV cache %s = %d tokens",
        built.architecture,
        _weights(plan),
        format_bytes(budget.kv_bytes),
        budget.num_tokens,
    )
    # That a model runs by the fallback is nothing to overlook.
    level = logging.INFO if built.module is None else logging.WARNING
    for note in built.notes:
        _LOGGER.log(level, "%s", note)


def _weights(plan: MemoryPlan) -> str:
    activations = plan.activation_bytes + plan.workspace_bytes + plan.output_bytes
    weights = format_bytes(plan.weights_bytes)
    if plan.offloaded_bytes:
        weights += f" and {format_bytes(plan.offloaded_bytes)} in host memory"
    return f"weights {weights}, activations {format_bytes(activations)}"


def _draft_arguments(draft: BuiltModel | None) -> dict[str, Any]:
    """What the runner has to know of the program that drafts."""
    if draft is None:
        return {}
    masks = draft.draft_masks
    return {
        "draft_vocab_size": draft.vocab_size,
        "draft_states_width": draft.draft_states_width,
        "draft_heads": draft.draft_heads,
        "draft_mask_token_id": None if masks is None else masks.token_id,
        "draft_block": masks is not None and masks.block,
        "draft_media_width": draft.draft_media_width,
        "draft_grid_positions": draft.draft_grid_positions,
        "draft_token_ids": list(draft.draft_token_ids),
    }


def _suffix_options(config: SpeculationConfig) -> _native.SuffixProposerOptions | None:
    drafts = config.suffix
    if drafts is None:
        return None
    return _native.SuffixProposerOptions(
        max_match=drafts.max_match,
        max_factor=drafts.max_factor,
        min_probability=drafts.min_probability,
        max_cached_texts=drafts.max_cached_requests,
    )


def _limits(
    built: BuiltModel,
    config: EngineConfig,
    sizes: ExecutorSizes,
    num_blocks: int,
    groups: list[_native.KvGroupOptions],
    media: MediaSizes,
) -> _native.RunnerLimits:
    return _native.RunnerLimits(
        max_num_tokens=sizes.max_num_tokens,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_logits_rows=sizes.max_num_logits_rows,
        max_model_len=built.max_model_len,
        vocab_size=built.vocab_size,
        num_blocks=num_blocks if groups else 0,
        block_size=config.cache.block_size,
        kv_groups=groups,
        chunked_prefill=built.chunked_prefill,
        prefix_caching=built.prefix_caching,
        pooling=built.pooling,
        token_rows=built.alignment is not None,
        max_draft_tokens=config.speculation.max_tokens,
        max_forced_tokens=_MAX_FORCED_TOKENS,
        max_encoder_tokens=media.step_tokens,
        max_adapters=config.lora.slots,
        routed_experts_per_token=math.prod(built.routed_experts or (0,)),
    )


def _options(
    config: EngineConfig, kv_tiers: _native.KvTierOptions, sizes: ExecutorSizes
) -> _native.EngineOptions:
    scheduler, cache = config.scheduler, config.cache
    return _native.EngineOptions(
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        max_partial_prefills=scheduler.max_num_partial_prefills,
        max_long_partial_prefills=scheduler.max_long_partial_prefills,
        max_waiting_requests=scheduler.max_num_queued_reqs,
        max_waiting_tokens=scheduler.max_waiting_tokens,
        max_waiting_per_tenant=scheduler.max_waiting_per_tenant,
        max_queue_time_ms=math.ceil(scheduler.max_queue_time * 1000),
        scheduling_policy=scheduler.scheduling_policy,
        tenant_weights=scheduler.tenant_weights,
        enable_prefix_caching=cache.enable_prefix_caching,
        prefix_caching_hash=cache.prefix_caching_hash_algo,
        prefix_cache_eviction=cache.prefix_cache_eviction,
        max_pinned_blocks=cache.max_pinned_kv_blocks,
        max_kv_events=cache.max_kv_events,
        max_in_flight_steps=sizes.steps_in_flight,
        output_interval_us=_OUTPUT_INTERVAL_US,
        kv_tiers=kv_tiers,
        max_step_us=(
            None if scheduler.max_step_ms is None else math.ceil(scheduler.max_step_ms * 1000)
        ),
        kv_block_age_sample=cache.kv_cache_metrics_sample if cache.kv_cache_metrics else 0.0,
    )


def _log(severity: str, line: str) -> None:
    _LOGGER.log(_LEVELS.get(severity, logging.ERROR), "%s", line)
