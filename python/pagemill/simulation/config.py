"""The options of `pagemill simulate`."""

from dataclasses import dataclass, field

from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.simulation.presets import DEVICES

_COUNT = Range(1, 2**31 - 1)
_DISTRIBUTIONS = ("fixed", "lognormal", "uniform")


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """The model: its shape, and how its numbers are stored."""

    model: str = option(
        "llama-3.1-8b",
        "A name (see the list below), a config.json or a directory that holds one, or a .gguf file."
        " No weights are read.",
        kind="positional",
    )
    weight_bits: float | None = option(
        None,
        "Bits of one weight, such as 4.5. Default: those of a .gguf file's tensors, else 16.",
        unit="bits",
        allowed=Range(1, 64),
    )
    kv_cache_bits: int = option(
        16, "Bits of one cached key or value element.", unit="bits", allowed=Range(1, 64)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """The device of each engine: a preset, or figures of your own."""

    hardware: str = option("h100", "What each engine runs on.", allowed=tuple(sorted(DEVICES)))
    devices: int = option(
        1,
        "Devices that one engine has: peak, bandwidth and memory times so many, and no cost of"
        " talking to each other, so the result is the best case.",
        unit="devices",
        allowed=Range(1, 1024),
    )
    peak_tflops: float | None = option(
        None, "Dense peak of one device in 10^12 operations/s.", allowed=Range(0.001, 10**6)
    )
    memory_bandwidth: float | None = option(
        None, "Of one device, in 10^9 bytes/s.", allowed=Range(0.001, 10**6)
    )
    device_memory: int | None = option(
        None, "Of one device, such as 80GB.", unit="bytes", allowed=Range(1, 2**50)
    )
    compute_efficiency: float | None = option(
        None, "Share of the peak that matrix multiplies reach.", allowed=Range(0.001, 1)
    )
    bandwidth_efficiency: float | None = option(
        None, "Share of the bandwidth that reading weights and KV reaches.", allowed=Range(0.001, 1)
    )
    step_overhead_us: float | None = option(
        None, "Time that every step takes besides.", unit="us", allowed=Range(0, 10**9)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """Each engine: its limits and its KV cache, as for `pagemill serve`."""

    max_num_seqs: int = option(
        256, "Most requests that run at the same time.", unit="requests", allowed=Range(1, 65536)
    )
    max_num_batched_tokens: int = option(
        8192, "Most tokens of one step.", unit="tokens", allowed=Range(1, 2**20)
    )
    long_prefill_token_threshold: int = option(
        0,
        "Most tokens of one request in one step; 0 is no limit.",
        unit="tokens",
        allowed=Range(0, 2**31 - 1),
    )
    max_step_ms: float | None = option(
        None,
        "Longest step while requests generate; 0 is no limit. Default: 2.5 times what the"
        " generating requests take alone, at least 5 ms.",
        unit="ms",
        allowed=Range(0, 3_600_000),
    )
    max_model_len: int = option(
        32768,
        "Most tokens of one request, prompt and output.",
        unit="tokens",
        allowed=Range(2, 2**24),
    )
    max_num_queued_reqs: int = option(
        100_000,
        "Most requests that wait; one more is refused.",
        unit="requests",
        allowed=Range(0, 2**31 - 1),
    )
    scheduling_policy: str = option("fcfs", "Who runs first.", allowed=("fair", "fcfs", "priority"))
    block_size: int = option(
        16, "Tokens per KV block: a power of two.", unit="tokens", allowed=Range(1, 256)
    )
    kv_cache_tokens: int | None = option(
        None,
        "Tokens that the KV cache holds. Default: what --memory-utilization of the device's memory"
        " leaves beside the weights.",
        unit="tokens",
        allowed=_COUNT,
    )
    memory_utilization: float = option(
        0.9,
        "Share of the device's memory that weights and KV cache use.",
        allowed=Range(0.01, 1.0),
    )
    eviction: str = option(
        "adaptive",
        "Which cached blocks are evicted first. lru: the least recently used. reuse: of those that"
        " were never reused the least recently used. adaptive: by whichever of these, or of two"
        " policies between them, would have hit most of the recent requests.",
        allowed=("adaptive", "lru", "reuse"),
    )
    enable_prefix_caching: bool = option(True, "Reuse the KV blocks of prompts that begin alike.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if self.block_size & (self.block_size - 1):
            raise ConfigError(f"--block-size: {self.block_size} is not a power of two")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster: engines behind a router."""

    engines: int = option(1, "Engines, all alike.", unit="engines", allowed=Range(1, 100_000))
    routing: str = option(
        "prefix_aware",
        "Which engine gets a request: each in turn; the one with the fewest unfinished requests;"
        " or the one that was sent the longest part of the prompt before, unless it is much busier"
        " than others.",
        allowed=("least_loaded", "prefix_aware", "round_robin"),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class Load:
    """The load: requests, alone or in conversations, or a recorded trace."""

    num_requests: int = option(1000, "Requests of the run.", unit="requests", allowed=_COUNT)
    request_rate: float = option(
        10.0,
        "Requests per second over all engines, if conversations do not end early.",
        unit="requests/s",
        allowed=Range(0.001, 10**6),
    )
    arrivals: str = option(
        "poisson",
        "How they come: at equal times, independently, or several at once.",
        allowed=("bursty", "constant", "poisson"),
    )
    mean_burst: int = option(
        10, "With bursty arrivals: how many at once.", unit="requests", allowed=Range(1, 10_000)
    )
    concurrency: int = option(
        0,
        "Users who each wait for their answer before they ask again; --request-rate does not count"
        " then. With --trace: sessions at the same time. 0: as many as come.",
        unit="users",
        allowed=Range(0, 2**24),
    )
    prompt_len: int = option(
        512, "Mean new tokens of a prompt.", unit="tokens", allowed=Range(1, 2**20)
    )
    prompt_distribution: str = option("lognormal", "Of prompt lengths.", allowed=_DISTRIBUTIONS)
    prompt_spread: float = option(
        0.8,
        "uniform: share of the mean to both sides; lognormal: deviation of the logarithm.",
        allowed=Range(0, 3),
    )
    output_len: int = option(
        128, "Mean tokens of an answer.", unit="tokens", allowed=Range(1, 2**20)
    )
    output_distribution: str = option("lognormal", "Of answer lengths.", allowed=_DISTRIBUTIONS)
    output_spread: float = option(0.8, "As --prompt-spread, of answers.", allowed=Range(0, 3))
    prefix_len: int = option(
        0, "Tokens that conversations have in common.", unit="tokens", allowed=Range(0, 2**20)
    )
    num_prefixes: int = option(
        1, "How many such prefixes; each conversation has one.", allowed=Range(1, 2**24)
    )
    turns: int = option(
        1,
        "Mean requests of a conversation, each with all before it in its prompt.",
        unit="requests",
        allowed=Range(1, 10_000),
    )
    think_time: float = option(
        0.0, "Mean time from an answer to the next turn.", unit="s", allowed=Range(0, 10**6)
    )
    trace: str | None = option(
        None,
        "A recorded trace instead, one JSON object a line: timestamp (ms), input_length,"
        " output_length, hash_ids (equal ids = equal tokens), and maybe session.",
    )
    trace_block_size: int = option(
        512, "Tokens of one of the trace's hash_ids.", unit="tokens", allowed=_COUNT
    )
    seed: int = option(0, "Which random lengths and times.", allowed=Range(0, 2**63 - 1))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class SimulateConfig:
    """Everything about one simulation."""

    model: SimulatedModel = field(default_factory=SimulatedModel)
    device: SimulatedDevice = field(default_factory=SimulatedDevice)
    engine: SimulatedEngine = field(default_factory=SimulatedEngine)
    cluster: Cluster = field(default_factory=Cluster)
    load: Load = field(default_factory=Load)
