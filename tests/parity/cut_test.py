"""A model divided at any layer into two programs gives the logits of the whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pagemill import _native
from pagemill.ops.cut import cut
from pagemill.ops.program import Program
from pagemill.ops.program_text import from_text, to_text
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.runner.torch_executor import TorchExecutor, TorchOptions
from pagemill.weights.source import ModelSource

from tests.families import families
from tests.parity.executors import Run
from tests.parity.tiny_models import make

NUM_BLOCKS = 64
Array = npt.NDArray[np.float32]


def native(program: Program) -> Run:
    options = _native.ExecutorOptions(
        num_threads=1, max_num_tokens=64, max_num_seqs=4, num_blocks=NUM_BLOCKS
    )
    return _native.NativeExecutor(_native.rewrite_program(to_text(program)), options)


@dataclass
class Stages:
    """Programs that run one after the other; each has block tables of its own."""

    executors: list[Run]
    batches: list[SimpleBatch]

    @classmethod
    def of(cls, programs: list[Program], make_executor: Any) -> Stages:
        executors = [make_executor(program) for program in programs]
        tables = [executor.table_block_sizes for executor in executors]
        return cls(executors, [SimpleBatch(NUM_BLOCKS, sizes) for sizes in tables])

    def step(self, tokens: dict[int, list[int]]) -> dict[str, Array]:
        outputs: dict[str, Array] = {}
        for executor, batches in zip(self.executors, self.batches, strict=True):
            outputs = executor(batches.step(tokens) | {"inputs": outputs})
        return outputs


# Attention alone, beside states and experts, and without a cache; tests/families cuts all families.
@pytest.fixture(scope="module", params=["llama", "granite_experts", "bert"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path: Path = tmp_path_factory.mktemp(request.param)
    make(request.param, path)
    return from_text(build(ModelSource.open(path), BuildOptions(rewrite=False)).program_text)


def layers_of(program: Program) -> list[str]:
    return [value.name for value in program.values if value.name.startswith("layer.")]


# A prompt of several blocks beside a short one, then one token of each, then of one.
STEPS: list[dict[int, list[int]]] = [{0: list(range(3, 40)), 1: [7, 5]}, {0: [9], 1: [2]}, {1: [4]}]


def test_each_cut_gives_the_results_of_the_whole(program: Program) -> None:
    whole = Stages.of([program], native)
    expected = [whole.step(tokens) for tokens in STEPS]
    for layer in layers_of(program)[:-1]:
        parts = cut(program, layer)
        assert [entry.name for entry in parts[1].inputs if entry.dtype == "act"] == [layer]
        stages = Stages.of(list(parts), native)
        for tokens, outputs in zip(STEPS, expected, strict=True):
            got = stages.step(tokens)
            assert outputs and got.keys() == outputs.keys()
            for name, values in outputs.items():
                # The same kernels on the same numbers, fused across the cut or not.
                np.testing.assert_allclose(got[name], values, rtol=1e-5, atol=1e-5)


def test_the_torch_executor_runs_stages(program: Program) -> None:
    def on_torch(part: Program) -> Run:
        return TorchExecutor(to_text(part), TorchOptions(num_blocks=NUM_BLOCKS))

    layer = layers_of(program)[0]
    whole, stages = Stages.of([program], on_torch), Stages.of(list(cut(program, layer)), on_torch)
    for tokens in STEPS:
        expected, got = whole.step(tokens), stages.step(tokens)
        for name, values in expected.items():
            np.testing.assert_array_equal(got[name], values)


def parts_of_layers(program: Program) -> dict[int, set[str]]:
    """The names of each layer's weights and caches."""
    names: dict[int, set[str]] = {}
    for entry in [*program.weights, *program.stacks, *program.quantized, *program.caches]:
        if found := re.search(r"\blayers?\.(\d+)\.|^(?:kv|conv|scan)(\d+)$", entry.name):
            names.setdefault(int(found[1] or found[2]), set()).add(entry.name)
    return names


def test_stages_have_the_weights_and_caches_of_their_layers(program: Program) -> None:
    whole = parts_of_layers(program)
    names = layers_of(program)
    assert sorted(whole) == list(range(len(names)))
    for count, layer in enumerate(names[:-1], 1):
        for part, layers in zip(
            cut(program, layer), (range(count), range(count, len(names))), strict=True
        ):
            assert parts_of_layers(part) == {i: whole[i] for i in layers}


def test_what_a_stage_lacks_is_named(program: Program) -> None:
    layer = layers_of(program)[0]
    second = native(cut(program, layer)[1])
    batch = SimpleBatch(NUM_BLOCKS, second.table_block_sizes).step({0: [3, 4]})
    with pytest.raises(_native.StatusError, match="the batch has no inputs"):
        second(batch)
    with pytest.raises(_native.StatusError, match=f"input {layer} must be float32 of the shape"):
        second(batch | {"inputs": {layer: np.zeros((2, 3), np.float32)}})


def test_layers_that_share_a_cache_are_not_divided(tmp_path: Path) -> None:
    families.make("gemma4", tmp_path)
    text = build(ModelSource.open(tmp_path), BuildOptions(rewrite=False)).program_text
    with pytest.raises(
        ValueError, match="in front of 'layer.3' and behind it read the cache 'kv2'"
    ):
        cut(from_text(text), "layer.3")


def test_streams_cross_from_stage_to_stage(tmp_path: Path) -> None:
    families.make("gemma3n", tmp_path, changes={"num_kv_shared_layers": 0})
    text = build(ModelSource.open(tmp_path), BuildOptions(rewrite=False)).program_text
    step = {0: list(range(3, 40)), 1: [7, 5]}
    expected = Stages.of([from_text(text)], native).step(step)["logits"]
    stages = list(cut(from_text(text), "layer.2"))
    np.testing.assert_array_equal(Stages.of(stages, native).step(step)["logits"], expected)


def test_layers_that_share_what_is_chosen_are_not_divided(tmp_path: Path) -> None:
    """Layer 2 attends to the tokens that the indexer of layer 1 has chosen."""
    families.make("glm_moe_dsa", tmp_path)
    text = build(ModelSource.open(tmp_path), BuildOptions(rewrite=False)).program_text
    with pytest.raises(ValueError, match="read 'chosen.1' of i32"):
        cut(from_text(text), "layer.1")
    whole, stages = from_text(text), cut(from_text(text), "layer.0")
    step = {0: list(range(3, 40)), 1: [7, 5]}
    expected = Stages.of([whole], native).step(step)["logits"]
    np.testing.assert_array_equal(Stages.of(list(stages), native).step(step)["logits"], expected)


def test_there_is_nothing_to_cut_behind_a_value_that_no_op_writes() -> None:
    with pytest.raises(ValueError, match="no op of the program writes 'layer.7'"):
        cut(Program(), "layer.7")
