"""Available memory, and the share of the KV cache.

`pagemill plan` and the server use the same function, so that they agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagemill.config.cache import CacheConfig
from pagemill.config.fields import ConfigError
from pagemill.config.quantities import format_bytes

# The pool is touched as it fills and then stays resident: room for this many requests of this many
# tokens, 11,008 in all, keeps a busy server of the default model (22.5 KiB per token) below 500 MB.
_AUTO_REQUESTS, _AUTO_REQUEST_TOKENS = 43, 256
# Limit of a counted request. With only windows and states, the pages hold a request of any length.
MOST_TOKENS = 2**30


class NoRoomError(ConfigError):
    """The model does not fit in the memory that it may use; with more it might."""


@dataclass(frozen=True, slots=True)
class KvPages:
    """The KV cache pages of requests: `page_bytes` bytes over all ranks, 0 for a model without a
    cache; `pages(n)` is the maximum that a request of n tokens holds."""

    page_bytes: int
    pages: Callable[[int], int]

    def tokens(self, pages: int) -> int:
        """The longest request that fits in `pages` pages, at most MOST_TOKENS."""
        if self.pages(MOST_TOKENS) <= pages:
            return MOST_TOKENS
        low, high = 0, 1
        while self.pages(high) <= pages:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.pages(middle) <= pages else (low, middle)
        return low


@dataclass(frozen=True, slots=True)
class FixedCosts:
    """Memory that a model takes besides the KV cache, from the executor's planner.

    `fixed_bytes`: weights (packed copies included), activations, workspace and outputs.
    `offloading_bytes`: host memory for KV blocks outside the pool, which `offloading_flag` sets.
    """

    fixed_bytes: int
    kv: KvPages
    offloading_bytes: int = 0
    offloading_flag: str = "--kv-offloading-bytes"


@dataclass(frozen=True, slots=True)
class KvBudget:
    """The KV cache to allocate."""

    num_blocks: int  # pages, the null page included
    kv_bytes: int
    num_tokens: int  # of the longest request that fits
    limit_bytes: int  # for all parts together
    total_bytes: int  # of all parts together


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Returns the bytes that this process may still take without swapping, on Linux.

    The minimum of the kernel's estimate and the rest of each enclosing control group.

    Args:
      root: the folder that contains /proc and /sys.

    Raises:
      ConfigError: the kernel does not report it.
    """
    meminfo = _read(root / "proc/meminfo")
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            least = int(line.split()[1]) * 1024
            break
    else:
        raise ConfigError("/proc/meminfo does not say how much memory is available")
    for group in _control_groups(root):
        for limit_name, usage_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = _read(group / limit_name).strip(), _read(group / usage_name).strip()
            if limit.isdigit() and usage.isdigit():
                # The page cache counts as usage, but is reclaimed when needed.
                reclaimable = _inactive_file_bytes(group)
                least = min(least, max(0, int(limit) - int(usage) + reclaimable))
    return least


def check_offloading(
    cache: CacheConfig, offloading_bytes: int, flag: str, available_bytes: int
) -> None:
    """Checks that what is in host memory fits there, for a device with memory of its own.

    Args:
      cache: the options.
      offloading_bytes: host memory for KV blocks or weights, which `flag` sets.
      flag: named by the error.
      available_bytes: of host memory, see `available_memory_bytes`.

    Raises:
      NoRoomError: they do not fit.
    """
    limit = int(available_bytes * cache.memory_utilization)
    if offloading_bytes > limit:
        raise NoRoomError(
            f"{flag} takes {format_bytes(offloading_bytes)} of host memory, of which"
            f" {format_bytes(limit)} may be used (--memory-utilization"
            f" {cache.memory_utilization:g}): lower {flag} to {format_bytes(limit)}"
        )


def plan_kv_cache(
    cache: CacheConfig,
    max_model_len: int,
    costs: FixedCosts,
    available_bytes: int,
    most_requests: int = 1,
) -> KvBudget:
    """Returns the KV cache to allocate.

    Args:
      cache: the options.
      max_model_len: tokens of the longest request; that much always fits.
      costs: what the model takes besides.
      available_bytes: see `available_memory_bytes`.
      most_requests: of `max_model_len` tokens, to have room for if the memory allows it.

    Raises:
      NoRoomError: a request of `max_model_len` tokens would not fit. The message has the numbers
        and the flags that would make it fit.
      ConfigError: the options allow too small a cache for it.
    """
    limit = int(available_bytes * cache.memory_utilization)
    left = limit - costs.fixed_bytes - costs.offloading_bytes
    page_bytes = costs.kv.page_bytes
    needed = costs.kv.pages(max_model_len) + 1  # the null page
    if cache.kv_cache_memory_bytes is None:
        most = most_requests * costs.kv.pages(max_model_len) + 1
        wanted = max(needed, most, _AUTO_REQUESTS * costs.kv.pages(_AUTO_REQUEST_TOKENS) + 1)
        fitting = max(left, 0) // page_bytes if page_bytes else wanted
        pages = min(wanted, fitting)
    else:
        pages = cache.kv_cache_memory_bytes // page_bytes if page_bytes else needed
    if left < 0 or pages < needed or pages * page_bytes > left:
        _refuse(cache, max_model_len, costs, limit)
    kv_bytes = pages * page_bytes
    total = costs.fixed_bytes + costs.offloading_bytes + kv_bytes
    return KvBudget(pages, kv_bytes, costs.kv.tokens(pages - 1), limit, total)


def with_blocks(budget: KvBudget, pages: KvPages, num_blocks: int) -> KvBudget:
    """Returns `budget` with fewer pages: `num_blocks`, which other machines have room for, too."""
    kv_bytes = num_blocks * pages.page_bytes
    return KvBudget(
        num_blocks,
        kv_bytes,
        pages.tokens(num_blocks - 1),
        budget.limit_bytes,
        budget.total_bytes - budget.kv_bytes + kv_bytes,
    )


def _refuse(cache: CacheConfig, max_model_len: int, costs: FixedCosts, limit: int) -> None:
    needed = (costs.kv.pages(max_model_len) + 1) * costs.kv.page_bytes
    requested = cache.kv_cache_memory_bytes
    if requested is not None and requested < needed:
        fitting = _fitting_len(costs, requested)
        raise ConfigError(
            f"a KV cache of {format_bytes(requested)} does not hold one request of {max_model_len}"
            f" tokens, which takes {format_bytes(needed)}: raise --kv-cache-memory-bytes"
            + (f", or lower --max-model-len to {fitting}" if fitting > 0 else "")
        )
    left = limit - costs.fixed_bytes - costs.offloading_bytes
    size = format_bytes(requested or needed)
    share = f"--memory-utilization {cache.memory_utilization:g}"
    head = (
        f"the model takes {format_bytes(costs.fixed_bytes)} without its KV cache and the KV cache"
        f" {size} for {max_model_len} tokens, but {format_bytes(limit)} may be used ({share})"
    )
    if costs.offloading_bytes:
        head += f" and {costs.offloading_flag} takes {format_bytes(costs.offloading_bytes)} of that"
        room = limit - costs.fixed_bytes - (requested or needed)
        if room > 0:
            raise NoRoomError(f"{head}: lower {costs.offloading_flag} to {format_bytes(room)}")
    fitting = _fitting_len(costs, left)
    if requested is not None and left > needed:
        raise NoRoomError(f"{head}: lower --kv-cache-memory-bytes to {format_bytes(left)}")
    if fitting > 0:
        raise NoRoomError(f"{head}: set --max-model-len {fitting}, or raise --memory-utilization")
    raise NoRoomError(
        f"{head}: lower --max-num-batched-tokens, raise --memory-utilization, on a device keep"
        " weights in host memory (--cpu-offload-gb), or use a smaller or more strongly quantized"
        " model"
    )


def _fitting_len(costs: FixedCosts, kv_bytes: int) -> int:
    if costs.kv.page_bytes == 0:
        return 0
    return costs.kv.tokens(max(0, kv_bytes // costs.kv.page_bytes - 1))


def _control_groups(root: Path) -> list[Path]:
    groups: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / "sys/fs/cgroup" / controllers
        # In a container the path may be the host's, so the mount's root is tried too.
        group = base / path.lstrip("/")
        while group != base and base in group.parents:
            groups.append(group)
            group = group.parent
        groups.append(base)
    return groups


def _inactive_file_bytes(group: Path) -> int:
    for line in _read(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
