"""The one door to the compiled extension `_core`: everything else imports it from here.

Checks the CPU before it loads the extension and the version after; both failures are ImportErrors
that say what to do.
"""

from __future__ import annotations

import pagemill
from pagemill._native import cpu_check

cpu_check.require_baseline()

try:
    from pagemill._native import _core
except ImportError as error:
    raise ImportError(
        f"pagemill's compiled extension cannot be loaded ({error}). From a checkout use "
        "`./bazelw run //python:pagemill`, or install a wheel (`./bazelw build //python:wheel`) "
        "that was built for this Python"
    ) from error

if _core.version != pagemill.__version__:
    raise ImportError(
        f"pagemill {pagemill.__version__} found a compiled extension of version {_core.version} at "
        f"{_core.__file__}: reinstall pagemill, or build the extension again"
    )

from pagemill._native._core import (  # noqa: E402  (after the checks)
    AdapterStore,
    AdapterWeights,
    CpuCapabilities,
    Device,
    DeviceExecutor,
    DevicePlugin,
    DurationHistogram,
    Engine,
    EngineClient,
    EngineOptions,
    EngineStats,
    ExecutorOptions,
    FoundDevice,
    InputChunk,
    KvGroupOptions,
    KvTierOptions,
    LayerTime,
    MatcherFactory,
    MediaEncoderOptions,
    MediaItem,
    MemoryPlan,
    ModelRunner,
    NativeExecutor,
    OpTime,
    PageSegment,
    PythonExecutor,
    Request,
    RequestOutput,
    Router,
    RunnerLimits,
    SamplingParams,
    SchemaCompiler,
    SharedSegment,
    SimDevice,
    SimLengths,
    SimModel,
    SimScheduler,
    Simulator,
    SimulatorOptions,
    Stage,
    StatusError,
    StepProfile,
    SuffixProposerOptions,
    SyntheticLoad,
    TokenLogprobs,
    TokenMatcher,
    TraceReplay,
    World,
    best_prefix_hits,
    cpu_share,
    data_caches,
    dequantize_blocks,
    detect_capabilities,
    follow_steps,
    kernel_choices,
    kv_groups,
    make_adapter,
    max_kv_pages,
    measure_peak,
    measure_read_bandwidth,
    memory_placement,
    output_schema,
    outputs_from_wire,
    plan_memory,
    plan_on_device,
    present_peaks,
    rewrite_program,
    transcript_matchers,
)

__all__ = [
    "AdapterStore",
    "AdapterWeights",
    "CpuCapabilities",
    "Device",
    "DeviceExecutor",
    "DevicePlugin",
    "DurationHistogram",
    "Engine",
    "EngineOptions",
    "EngineClient",
    "EngineStats",
    "ExecutorOptions",
    "FoundDevice",
    "InputChunk",
    "KvGroupOptions",
    "LayerTime",
    "KvTierOptions",
    "MatcherFactory",
    "MediaEncoderOptions",
    "MediaItem",
    "MemoryPlan",
    "ModelRunner",
    "NativeExecutor",
    "OpTime",
    "PageSegment",
    "PythonExecutor",
    "Request",
    "RequestOutput",
    "Router",
    "RunnerLimits",
    "SamplingParams",
    "SchemaCompiler",
    "SharedSegment",
    "SimDevice",
    "SimLengths",
    "SimModel",
    "SimScheduler",
    "Simulator",
    "SimulatorOptions",
    "Stage",
    "StatusError",
    "StepProfile",
    "SuffixProposerOptions",
    "SyntheticLoad",
    "TokenLogprobs",
    "TokenMatcher",
    "TraceReplay",
    "World",
    "best_prefix_hits",
    "cpu_share",
    "data_caches",
    "dequantize_blocks",
    "detect_capabilities",
    "follow_steps",
    "kernel_choices",
    "kv_groups",
    "make_adapter",
    "max_kv_pages",
    "measure_peak",
    "measure_read_bandwidth",
    "memory_placement",
    "output_schema",
    "outputs_from_wire",
    "plan_memory",
    "plan_on_device",
    "present_peaks",
    "rewrite_program",
    "transcript_matchers",
]
