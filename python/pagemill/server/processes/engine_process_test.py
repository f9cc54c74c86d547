"""The share of the machine that an engine's process takes."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

from pagemill import _native
from pagemill.config import EngineConfig, MachineShare, build, for_share
from pagemill.engine.executor_sizes import host_memory_bytes
from pagemill.server.processes.engine_process import take_share


def _taken(config: EngineConfig) -> tuple[EngineConfig, set[int]]:
    """What `take_share` returns and the CPUs that are left then, in a thread, which pins itself."""
    taken: list[tuple[EngineConfig, set[int]]] = []

    def take() -> None:
        taken.append((take_share(config), os.sched_getaffinity(0)))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def test_engines_divide_the_cores() -> None:
    allowed, cores = os.sched_getaffinity(0), _native.detect_capabilities().cores
    config = build(EngineConfig, {"model": "unread"})
    shares = [_taken(for_share(config, MachineShare(index, 2))) for index in range(2)]
    assert [each.executor.threads for each, _ in shares] == [max(1, cores // 2)] * 2
    (_, first), (_, second) = shares
    if _native.cpu_share(0, 2):
        assert first | second == allowed and not first & second
    many = MachineShare(0, len(allowed) + 1)
    taken, cpus = _taken(for_share(config, many))
    assert (taken.executor.threads, cpus) == (1, allowed)


def test_threads_of_one_engine_are_what_was_set() -> None:
    config = build(EngineConfig, {"model": "unread", "threads": 7})
    taken, _ = _taken(for_share(config, MachineShare(1, 2)))
    assert taken.executor.threads == 7


def test_ranks_divide_the_cores_of_a_share() -> None:
    cores = _native.detect_capabilities().cores
    config = build(EngineConfig, {"model": "unread", "pipeline_parallel_size": 2})
    taken, _ = _taken(for_share(config, MachineShare(0, 1)))
    assert taken.executor.threads == max(1, cores // 2)


def test_an_engine_has_the_memory_of_its_share() -> None:
    config = build(EngineConfig, {"model": "unread"})
    assert host_memory_bytes(for_share(config, MachineShare(1, 2, 1 << 20))) == 1 << 20
    assert host_memory_bytes(config) > 1 << 20


def test_an_engine_has_a_file_of_its_own() -> None:
    options = {
        "model": "unread",
        "kv_offloading_bytes": "1MiB",
        "kv_offloading_disk_path": "/kv/tier",
        "kv_offloading_disk_bytes": "1MiB",
    }
    config = build(EngineConfig, options)
    own = for_share(config, MachineShare(1, 2))
    assert own.kv_tiers.kv_offloading_disk_path == "/kv/tier.1"
    assert replace(own, share=config.share, kv_tiers=config.kv_tiers) == config


def test_an_engine_has_a_port_of_its_own() -> None:
    options = {
        "model": "unread",
        "kv_shared_memory_bytes": "1MiB",
        "kv_transfer_listen": "[fd00::7]:7000",
        "kv_transfer_secret_file": "/secret",
    }
    config = build(EngineConfig, options)
    for index in range(2):
        own = for_share(config, MachineShare(index, 2))
        assert own.kv_tiers.kv_transfer_listen == f"[fd00::7]:{7000 + index}"
