"""Tests of pagemill.config.kv_tiers."""

import pytest

from pagemill.config import CacheConfig, ConfigError, EngineConfig, KvTierConfig, build
from pagemill.config.memory import FixedCosts, KvPages, plan_kv_cache

MIB = 2**20


def test_kv_stays_in_the_pool_unless_asked_for() -> None:
    assert not KvTierConfig().enabled
    assert KvTierConfig().host_bytes == 0


def test_flat_names_make_tiers() -> None:
    config = build(
        EngineConfig,
        {
            "kv_offloading_bytes": "64MiB",
            "kv_offloading_disk_path": "/disk/kv",
            "kv_offloading_disk_bytes": "1GiB",
            "kv_offloading_policy": "arc",
        },
    )
    assert config.kv_tiers.enabled
    assert config.kv_tiers.host_bytes == 64 * MIB
    assert config.kv_tiers.kv_offloading_disk_bytes == 1024 * MIB


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_offloading_bytes": 0}, "--kv-offloading-bytes"),
        ({"kv_offloading_policy": "mru"}, "--kv-offloading-policy.*arc"),
        ({"kv_offloading_disk_path": "/disk/kv"}, "--kv-offloading-disk-bytes go together"),
        ({"kv_offloading_disk_bytes": 9}, "--kv-offloading-disk-bytes go together"),
        ({"kv_transfer_timeout_ms": 0}, "--kv-transfer-timeout-ms"),
        ({"kv_connector_path": "/kv", "kv_offloading_bytes": "1MiB"}, "in place of"),
        ({"kv_connector_path": "/kv", "kv_shared_memory_bytes": "1MiB"}, "in place of"),
        ({"kv_shared_memory_bytes": "1MiB", "kv_offloading_bytes": "1MiB"}, "in place of"),
        (
            {"kv_transfer_listen": "10.0.0.7:7000", "kv_transfer_secret_file": "/secret"},
            "need --kv-shared-memory-bytes",
        ),
        (
            {"kv_transfer_peers": ["10.0.0.7:7000"], "kv_shared_memory_bytes": "1MiB"},
            "--kv-transfer-secret-file",
        ),
        (
            {"kv_transfer_secret_file": "/secret", "kv_shared_memory_bytes": "1MiB"},
            "goes with --kv-transfer-listen",
        ),
    ],
)
def test_refusals_name_the_flag(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(EngineConfig, options)


def test_host_memory_for_kv_counts() -> None:
    costs = FixedCosts(10 * MIB, KvPages(MIB, lambda tokens: -(-tokens // 16)), 50 * MIB)
    budget = plan_kv_cache(CacheConfig(memory_utilization=1.0), 160, costs, 100 * MIB)
    assert budget.num_blocks == 40
    with pytest.raises(
        ConfigError, match=r"takes 50\.0 MiB of that: lower --kv-offloading-bytes to 26"
    ):
        plan_kv_cache(CacheConfig(memory_utilization=1.0), 1000, costs, 100 * MIB)


def test_shared_memory_for_kv_counts() -> None:
    tiers = KvTierConfig(kv_shared_memory_bytes=50 * MIB)
    assert tiers.enabled
    costs = FixedCosts(
        10 * MIB, KvPages(MIB, lambda tokens: tokens), tiers.host_bytes, tiers.host_bytes_flag
    )
    with pytest.raises(ConfigError, match="lower --kv-shared-memory-bytes to 39"):
        plan_kv_cache(CacheConfig(memory_utilization=1.0), 50, costs, 100 * MIB)
