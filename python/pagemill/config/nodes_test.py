"""Tests of pagemill.config.nodes, and of how ranks are distributed over nodes."""

from typing import Any

import pytest

from pagemill.config import ConfigError, EngineConfig, ServeConfig, build


def config(**options: Any) -> EngineConfig:
    return build(EngineConfig, options)


def test_each_node_has_an_equal_part_of_the_ranks_in_order() -> None:
    assert list(config().local_ranks) == [0]
    assert list(config(tensor_parallel_size=2).local_ranks) == [0, 1]
    options = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "nnodes": 2}
    assert list(config(**options).local_ranks) == [0, 1]
    assert list(config(**options, node_rank=1).local_ranks) == [2, 3]
    assert list(config(**options | {"nnodes": 4}, node_rank=3).local_ranks) == [3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nnodes": 2}, "--nnodes 2 needs a multiple of 2 ranks"),
        ({"nnodes": 2, "pipeline_parallel_size": 3}, "is 3"),
        (
            {"nnodes": 2, "tensor_parallel_size": 2, "pipeline_parallel_size": 3},
            "neither a multiple nor a divisor of --tensor-parallel-size 2",
        ),
        ({"node_rank": 1}, "--node-rank 1 needs --nnodes of at least 2"),
        ({"master_port": 0}, "--master-port"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_option(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**options)


def test_engines_of_a_server_are_on_one_machine() -> None:
    options = {"nnodes": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}
    with pytest.raises(ConfigError, match="--nnodes needs --data-parallel-size 1"):
        build(ServeConfig, options)
