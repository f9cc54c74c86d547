"""Tests of pagemill.config.memory."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagemill.config import CacheConfig, ConfigError
from pagemill.config.memory import (
    MOST_TOKENS,
    FixedCosts,
    KvPages,
    NoRoomError,
    available_memory_bytes,
    plan_kv_cache,
)

MIB = 2**20


def full(page_bytes: int) -> KvPages:
    """Full attention in blocks of 16 tokens."""
    return KvPages(page_bytes, lambda tokens: -(-tokens // 16))


def sliding(page_bytes: int) -> KvPages:
    """A third of the layers have full attention, the others a window of 512 tokens."""
    return KvPages(page_bytes, lambda tokens: -(-tokens // 16) + 2 * min(-(-tokens // 16), 33))


def test_automatic_size_holds_11008_tokens_or_one_request() -> None:
    costs = FixedCosts(100 * MIB, full(368_640))
    short = plan_kv_cache(CacheConfig(), 8192, costs, 8 << 30)
    assert (short.num_tokens, short.num_blocks) == (11008, 689)
    assert short.kv_bytes == 689 * 368_640
    assert short.total_bytes == 100 * MIB + short.kv_bytes
    long = plan_kv_cache(CacheConfig(), 20_001, costs, 8 << 30)
    assert long.num_tokens == 20_016  # rounded up to whole blocks


def test_less_than_wanted_where_memory_is_short() -> None:
    budget = plan_kv_cache(
        CacheConfig(memory_utilization=1.0), 160, FixedCosts(0, full(MIB)), 100 * MIB
    )
    assert budget.num_blocks == 100


def test_a_stated_size_is_taken() -> None:
    cache = CacheConfig(kv_cache_memory_bytes=50 * MIB)
    assert plan_kv_cache(cache, 160, FixedCosts(0, full(MIB)), 1 << 40).num_blocks == 50


@pytest.mark.parametrize(
    ("cache", "fixed", "words"),
    [
        (CacheConfig(), 50 * MIB, r"set --max-model-len 464, or raise --memory-utilization"),
        (CacheConfig(), 90 * MIB, r"smaller or more strongly quantized"),
        (CacheConfig(kv_cache_memory_bytes=9 * MIB), 0, r"--max-model-len to 128"),
        (CacheConfig(kv_cache_memory_bytes=1), 0, r"raise --kv-cache-memory-bytes$"),
        (CacheConfig(kv_cache_memory_bytes=79 * MIB), 10 * MIB, r"lower --max-model-len|70.0 MiB"),
    ],
)
def test_refusals_have_the_flag_that_helps(cache: CacheConfig, fixed: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_kv_cache(cache, 1000, FixedCosts(fixed, full(MIB)), 100 * MIB)


def test_more_memory_may_help_or_not() -> None:
    costs = FixedCosts(50 * MIB, full(MIB))
    with pytest.raises(NoRoomError):
        plan_kv_cache(CacheConfig(), 1000, costs, 100 * MIB)
    with pytest.raises(ConfigError) as raised:
        plan_kv_cache(CacheConfig(kv_cache_memory_bytes=MIB), 1000, costs, 1 << 40)
    assert not isinstance(raised.value, NoRoomError)


def test_the_suggested_length_fits() -> None:
    costs = FixedCosts(50 * MIB, full(MIB))
    assert plan_kv_cache(CacheConfig(), 464, costs, 100 * MIB).num_tokens >= 464


@given(
    st.integers(1, 10**5),
    st.integers(0, 2**34),
    st.sampled_from([0, 1, 4096, 368_640]),
    st.integers(0, 2**36),
    st.none() | st.integers(1, 2**34),
    st.sampled_from([full, sliding]),
)
def test_a_budget_fits_and_holds_a_request(
    length: int,
    fixed: int,
    per_block: int,
    available: int,
    requested: int | None,
    shape: Callable[[int], KvPages],
) -> None:
    cache = CacheConfig(kv_cache_memory_bytes=requested)
    try:
        budget = plan_kv_cache(cache, length, FixedCosts(fixed, shape(per_block)), available)
    except ConfigError as error:
        assert "--" in str(error)
        return
    assert budget.num_tokens >= length
    assert budget.kv_bytes + fixed <= budget.limit_bytes <= available
    assert requested is None or per_block == 0 or budget.kv_bytes <= requested


def test_windows_leave_room_for_longer_requests() -> None:
    costs = FixedCosts(0, sliding(MIB))
    cache = CacheConfig(kv_cache_memory_bytes=200 * MIB)
    budget = plan_kv_cache(cache, 1024, costs, 1 << 40)
    assert budget.num_tokens == (199 - 66) * 16


def test_a_model_of_windows_alone_has_no_longest_request() -> None:
    counts: list[int] = []

    def pages(tokens: int) -> int:
        counts.append(tokens)
        return min(-(-tokens // 16), 33)

    assert KvPages(MIB, pages).tokens(33) == MOST_TOKENS
    assert max(counts) < 2**31  # the limit of the native count


def test_available_memory_honours_control_groups(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 900 kB\nMemAvailable:     800 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    assert available_memory_bytes(tmp_path) == 800 * 1024
    group = tmp_path / "sys/fs/cgroup/a"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("102400\n")
    (group / "memory.current").write_text("51200\n")
    assert available_memory_bytes(tmp_path) == 51200
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    assert available_memory_bytes(tmp_path) == 52200
    (group / "memory.max").write_text("max\n")
    assert available_memory_bytes(tmp_path) == 800 * 1024


def test_this_machine_has_memory() -> None:
    assert available_memory_bytes() > 64 * MIB
