"""Layers with recurrent states, divided among ranks: each has its part of the states and of the
matrices, and some numbers of ranks meet what two do not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pagemill.ops.program import Program
from pagemill.ops.program_text import from_text
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.families import gguf_recurrent_converters as recurrent
from tests.families.divided import Array, check_ranks
from tests.families.families import make
from tests.families.gguf_files import write_gguf
from tests.parity.executors import make_executor
from tests.parity.one_request import OneRequest, difference

TOLERANCE = 1e-4  # that of the families' logits

_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 12}

# A state of each of the layers that ranks divide: the beginning of its caches' names.
STATES: Mapping[str, str] = {
    "falcon_h1": "scan",
    "granite_hybrid": "scan",
    "jamba": "scan",
    "kimi_linear": "delta",
    "lfm2": "conv",
    "minimax": "lightning",
    "nemotron_h": "scan",
    "olmo_hybrid": "delta",
    "plamo2": "scan",
    "qwen3_5_moe": "delta",
    "qwen3_next": "delta",
    "recurrent_gemma": "recurrence",
    "rwkv": "wkv",
    "rwkv6": "wkv",
    "rwkv7": "wkv",
    "zamba2": "scan",
}


def _program(path: Path, shard: Shard) -> Program:
    options = BuildOptions(rewrite=False, shard=shard)
    return from_text(build(ModelSource.open(path), options).program_text)


def _sizes(program: Program, states: str) -> tuple[int, int]:
    """Elements of the states of this name, and of all matrices of layers."""
    caches = [math.prod(c.dims) for c in program.caches if c.name.startswith(states)]
    assert caches
    matrices = [
        weight.shape
        for weight in program.weights
        if re.search(r"\.(layers|blocks)\.", weight.name) and len(weight.shape) > 1
    ]
    return sum(caches), sum(map(math.prod, matrices))


@pytest.mark.parametrize("family", STATES)
def test_each_of_two_ranks_has_half_of_the_states(family: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    states, matrices = _sizes(_program(tmp_path, Shard()), STATES[family])
    for rank in range(2):
        own = _sizes(_program(tmp_path, Shard(rank, 2)), STATES[family])
        assert own[0] * 2 == states
        assert own[1] < 0.75 * matrices  # some small ones are whole


@pytest.mark.parametrize("family", ["bamba", "falcon_h1", "nemotron_h", "zamba2"])
def test_several_ranks_have_a_group_if_there_are_fewer(family: str, tmp_path: Path) -> None:
    """Of two groups, B and C of one; its norm is over the heads of two ranks."""
    changes = {
        "nemotron_h": {**_HEADS, "mamba_num_heads": 8},
        "zamba2": {"num_attention_heads": 8, "num_key_value_heads": 8},
    }
    _check_four_ranks(family, changes.get(family, _HEADS), tmp_path)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("plamo2", {"num_attention_heads": 8, "num_key_value_heads": 4, "mamba_num_heads": 8}),
        ("rwkv6", {"head_size": 6}),
        ("rwkv7", {"head_dim": 6}),
    ],
)
def test_four_ranks(family: str, changes: Mapping[str, int], tmp_path: Path) -> None:
    _check_four_ranks(family, changes, tmp_path)


def _check_four_ranks(family: str, changes: Mapping[str, int], path: Path) -> None:
    reference = make(family, path, changes=changes)
    source = ModelSource.open(path)
    assert difference(make_executor("native", source), reference) <= TOLERANCE
    _check(reference, source, count=4)


def _check(
    reference: PreTrainedModel, source: ModelSource, *, count: int = 2, partly: bool | None = None
) -> None:
    request = OneRequest(reference)

    def distance(logits: Array) -> float:
        return request.difference(logits) / TOLERANCE

    check_ranks(source, BuildOptions(), request.steps, distance, count=count, partly=partly)


@pytest.mark.parametrize("heads", [4, 36])
def test_heads_of_a_group_that_are_apart(heads: int, tmp_path: Path) -> None:
    """As GGUF files have them: a rank's are in one place, or in more than are put side by side at
    once."""
    changes = {"linear_num_key_heads": 4, "linear_num_value_heads": heads, **_HEADS}
    reference = make("qwen3_5", tmp_path, changes=changes)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "qwen35", path, recurrent.QWEN3_5)
    for count in (2, 4):
        _check(reference, ModelSource.open(path), count=count)


def test_heads_that_do_not_divide_are_computed_whole(tmp_path: Path) -> None:
    reference = make("qwen3_next", tmp_path, changes={"linear_num_key_heads": 3})
    _check(reference, ModelSource.open(tmp_path), partly=True)
    whole = _sizes(_program(tmp_path, Shard()), "delta")
    assert _sizes(_program(tmp_path, Shard(1, 2)), "delta")[0] == whole[0]
