"""Tests of pagemill.config.data_parallel."""

from typing import Any

import pytest

from pagemill.config import ConfigError, MachineShare, ServeConfig, build, for_share
from pagemill.config.data_parallel import DataParallelConfig


def engines(**options: Any) -> DataParallelConfig:
    return build(ServeConfig, options).server.data_parallel


def test_engines_are_on_this_machine_unless_others_have_them() -> None:
    assert (engines().local_engines, engines().spans_machines) == (range(1), False)
    four = {"data_parallel_size": 4}
    assert engines(**four).local_engines == range(4)
    assert not engines(**four, data_parallel_size_local=4).spans_machines
    first = engines(**four, data_parallel_size_local=2)
    assert (first.local_engines, first.spans_machines) == (range(2), True)
    none = engines(**four, data_parallel_size_local=0)
    assert (none.local_engines, none.spans_machines) == (range(0), True)
    second = engines(**four, data_parallel_start_rank=2, headless=True)
    assert (second.local_engines, second.spans_machines) == (range(2, 4), True)
    one = {"data_parallel_start_rank": 3, "data_parallel_size_local": 1}
    assert engines(**four, **one, headless=True).local_engines == range(3, 4)


def test_engines_of_other_machines_need_processes() -> None:
    config = build(ServeConfig, {"data_parallel_size_local": 0})
    assert config.server.has_supervisor


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data_parallel_size_local": 2}, "--data-parallel-size 1 is less than 2"),
        (
            {"data_parallel_size": 4, "data_parallel_start_rank": 3, "headless": True}
            | {"data_parallel_size_local": 2},
            "--data-parallel-size 4 is less than 5",
        ),
        ({"data_parallel_start_rank": 1}, "--data-parallel-start-rank needs --headless"),
        ({"headless": True, "data_parallel_start_rank": 2}, "--headless needs engines of its own"),
        ({"headless": True, "data_parallel_size_local": 0}, "--headless needs engines of its own"),
        ({"headless": True, "nnodes": 2, "tensor_parallel_size": 2}, "--nnodes needs"),
        (
            {"data_parallel_size_local": 0, "weight_transfer_dir": "/dev/shm"},
            "--weight-transfer-dir needs",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_option(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(ServeConfig, options)


def test_files_are_those_of_the_number_among_all_engines() -> None:
    options = {"kv_offloading_disk_path": "/disk/kv", "kv_offloading_disk_bytes": 2**20}
    config = build(ServeConfig, options).engine
    tiers = for_share(config, MachineShare(1, 2, first=2)).kv_tiers
    assert tiers.kv_offloading_disk_path == "/disk/kv.3"
