"""The paged KV cache."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The KV cache: size, pages and sharing."""

    block_size: int = option(
        16, "Tokens per KV block: a power of two.", unit="tokens", allowed=Range(1, 256)
    )
    kv_cache_dtype: str = option(
        "auto",
        "Type of cached keys and values. auto: f32 for a model with f32 weights, else bf16; with"
        " --dtype bfloat16, bf16. bfloat16 is bf16. int8, with a scale for each token and head,"
        " and fp8 (fp8_e4m3), with the checkpoint's scales if present: half the memory of bf16,"
        " and half of the bytes that long contexts read per token; int8 is the more accurate of"
        " the two. int4 (4 bits, rotated, with scales as int8; not on SYCL): a quarter, for less"
        " accuracy. k8v4 (keys as int8, values as int4; not on SYCL): between int8 and int4 in"
        " both. All four need --executor native. Of latent attention fp8 (fp8_ds_mla) stores"
        " latents with a scale for each 128 elements and rotated keys in bf16; int4, int8 and"
        " k8v4 are refused.",
        allowed=(
            "auto",
            "bf16",
            "bfloat16",
            "f32",
            "fp8",
            "fp8_ds_mla",
            "fp8_e4m3",
            "int4",
            "int8",
            "k8v4",
        ),
    )
    kv_cache_memory_bytes: int | None = option(
        None,
        "Size of the KV cache, such as 2GiB. Default: room for one request of --max-model-len"
        " tokens, and for 11,008 tokens at least, within --memory-utilization; on a --device for"
        " --max-num-seqs requests of --max-model-len tokens, as far as that allows.",
        unit="bytes",
        allowed=Range(1, 2**62),
    )
    memory_utilization: float = option(
        0.8,
        "Share of the memory available at start (a container's limit counts; on a --device, its"
        " free memory) that weights, activations and KV cache together may use.",
        allowed=Range(0.01, 1.0),
    )
    enable_prefix_caching: bool = option(
        True, "Reuse the KV blocks of equal prompt prefixes. Off: every prompt is computed."
    )
    prefix_caching_hash_algo: str = option(
        "xxh3-128",
        "Hash that identifies equal prefixes. xxh3-128 is fast; use sha256 if a tenant must not be"
        " able to construct a prompt that collides with another tenant's.",
        allowed=("xxh3-128", "sha256"),
    )
    prefix_cache_eviction: str = option(
        "adaptive",
        "Which cached block is evicted first. lru: the least recently used one. reuse: blocks that"
        " were used again are kept longer than those that were not. adaptive: the one of these, or"
        " a policy between them, that would have hit most of the recent requests.",
        allowed=("adaptive", "lru", "reuse"),
    )

    max_pinned_kv_blocks: int = option(
        0,
        "Most KV blocks that pinned prefixes may keep from being evicted; requests cannot count on"
        " them. 0: nothing can be pinned.",
        unit="blocks",
        allowed=Range(0, 2**31 - 1),
    )
    max_kv_events: int = option(
        0,
        "Events of the prefix cache (what came, what went) that are kept for routers to poll. 0:"
        " none are made.",
        unit="events",
        allowed=Range(0, 10**6),
    )
    kv_cache_metrics: bool = option(
        False,
        "Measure how old cached KV blocks become: kv_block_lifetime_seconds and two more of the"
        " metrics.",
    )
    kv_cache_metrics_sample: float = option(
        0.01,
        "Share of the cached blocks that --kv-cache-metrics measures.",
        allowed=Range(1e-6, 1.0),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if self.block_size & (self.block_size - 1):
            raise ConfigError(f"--block-size: {self.block_size} is not a power of two")
        if self.kv_cache_dtype in ("int4", "k8v4") and self.block_size % 4:
            raise ConfigError(
                f"--kv-cache-dtype {self.kv_cache_dtype} needs blocks of a multiple of 4 tokens:"
                f" --block-size is {self.block_size}, set 4 or more"
            )
