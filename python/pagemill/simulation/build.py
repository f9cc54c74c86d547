"""From the options of `pagemill simulate` to a simulator."""

import math
from dataclasses import dataclass
from typing import Any

from pagemill import _native
from pagemill.config import ConfigError
from pagemill.config.quantities import format_bytes
from pagemill.simulation.config import Load, SimulateConfig
from pagemill.simulation.model_shape import ReadModel, native_shape, read_model, stored_bytes
from pagemill.simulation.presets import DEVICES
from pagemill.simulation.trace import read_trace

_MAX_BLOCKS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulator that is ready to run, and what it simulates, in a line for people."""

    simulator: "_native.Simulator"
    num_requests: int
    description: str


def build_simulation(config: SimulateConfig) -> Simulation:
    """Returns the configured simulation.

    Raises:
      ConfigError: the model does not fit the device, or an option does not fit the others.
      StatusError: the simulator refuses an option.
    """
    model = read_model(config.model)
    shape = native_shape(model, config.model)
    scheduler = _scheduler(config, _kv_tokens(config, model, shape))
    longest = config.engine.max_step_ms
    options = _native.SimulatorOptions(
        num_engines=config.cluster.engines,
        routing=config.cluster.routing,
        scheduler=scheduler,
        device=_device(config),
        model=shape,
        max_step_us=None if longest is None else math.ceil(longest * 1000),
    )
    load = config.load
    if load.trace is None:
        simulator = _native.Simulator.synthetic(options, _synthetic(load))
        count = load.num_requests
    else:
        replay = _native.TraceReplay()
        replay.concurrency = load.concurrency
        replay.think_ns = round(load.think_time * 1e9)
        rows = read_trace(load.trace, load.trace_block_size)
        simulator = _native.Simulator.replay(options, rows, replay)
        count = len(rows)
    return Simulation(simulator, count, _describe(config, model))


def _describe(config: SimulateConfig, model: ReadModel) -> str:
    load, device = config.load, config.device
    each = device.hardware if device.devices == 1 else f"{device.devices} x {device.hardware}"
    if load.trace is not None:
        what = load.trace
    elif load.concurrency:
        what = f"{load.concurrency:,} users"
    else:
        what = f"{load.request_rate:,g} requests/s ({load.arrivals})"
    engines = f"{config.cluster.engines:,} engine{'s' if config.cluster.engines > 1 else ''}"
    routing = f", {config.cluster.routing}" if config.cluster.engines > 1 else ""
    return f"{model.name} on {engines} of {each}{routing}: {what}"


def _device(config: SimulateConfig) -> "_native.SimDevice":
    given, preset = config.device, DEVICES[config.device.hardware]
    peak = preset.peak_flops if given.peak_tflops is None else given.peak_tflops * 1e12
    bandwidth = (
        preset.bandwidth_bytes if given.memory_bandwidth is None else given.memory_bandwidth * 1e9
    )
    device = _native.SimDevice()
    device.peak_flops = round(peak * given.devices)
    device.bandwidth_bytes = round(bandwidth * given.devices)
    device.compute_efficiency_permille = round(
        1000 * _or(given.compute_efficiency, preset.compute_efficiency)
    )
    device.bandwidth_efficiency_permille = round(
        1000 * _or(given.bandwidth_efficiency, preset.bandwidth_efficiency)
    )
    device.step_overhead_ns = round(1000 * _or(given.step_overhead_us, preset.step_overhead_us))
    return device


def _kv_tokens(config: SimulateConfig, model: ReadModel, shape: "_native.SimModel") -> int:
    if config.engine.kv_cache_tokens is not None:
        return config.engine.kv_cache_tokens
    given = config.device
    each = _or(given.device_memory, DEVICES[given.hardware].memory_bytes)
    limit = int(each * given.devices * config.engine.memory_utilization)
    weights = stored_bytes(model, shape)
    tokens = (limit - weights) // shape.kv_token_bytes
    if tokens < config.engine.block_size:
        raise ConfigError(
            f"--hardware: {model.name} takes {format_bytes(weights)}, an engine may use"
            f" {format_bytes(limit)}; give it more --devices or fewer --weight-bits"
        )
    return tokens


def _scheduler(config: SimulateConfig, kv_tokens: int) -> "_native.SimScheduler":
    engine = config.engine
    scheduler = _native.SimScheduler()
    scheduler.max_num_tokens = engine.max_num_batched_tokens
    scheduler.max_num_seqs = engine.max_num_seqs
    scheduler.max_num_logits_rows = engine.max_num_seqs
    scheduler.max_model_len = engine.max_model_len
    scheduler.long_prefill_token_threshold = engine.long_prefill_token_threshold
    scheduler.max_waiting_requests = engine.max_num_queued_reqs
    scheduler.policy = engine.scheduling_policy
    scheduler.block_size = engine.block_size
    # Block 0 holds nothing.
    scheduler.num_blocks = min(_MAX_BLOCKS, 1 + -(-kv_tokens // engine.block_size))
    scheduler.eviction = engine.eviction
    scheduler.enable_prefix_caching = engine.enable_prefix_caching
    return scheduler


def _synthetic(load: Load) -> "_native.SyntheticLoad":
    made = _native.SyntheticLoad()
    made.seed = load.seed
    made.num_requests = load.num_requests
    made.concurrency = load.concurrency
    made.arrival_process = load.arrivals
    # Conversations arrive; each is `turns` requests in the mean.
    made.mean_gap_ns = max(1, round(1e9 * load.turns / load.request_rate))
    made.mean_burst = load.mean_burst
    made.prompt = _lengths(load.prompt_distribution, load.prompt_len, load.prompt_spread)
    made.output = _lengths(load.output_distribution, load.output_len, load.output_spread)
    made.prefix_tokens = load.prefix_len
    made.num_prefixes = load.num_prefixes
    made.mean_turns = load.turns
    made.mean_think_ns = round(1e9 * load.think_time)
    return made


def _lengths(distribution: str, mean: int, spread: float) -> "_native.SimLengths":
    lengths = _native.SimLengths()
    lengths.distribution = distribution
    lengths.mean_tokens = mean
    lengths.spread_permille = round(1000 * spread)
    return lengths


def _or(value: float | None, default: float) -> Any:
    return default if value is None else value
