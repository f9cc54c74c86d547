"""Programs with activations in bf16 and f16: native against torch, and both against f32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.executors import Run, make_executor, new_batches
from tests.parity.greedy import generate
from tests.parity.tiny_models import make

Array = npt.NDArray[np.float32]
Type = Literal["f32", "bf16", "f16"]

# The largest relative error of one rounding.
ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12}

# Bounds on the rounding errors of a model in a row of logits, in units of one rounding. The 20 to
# 80 values on the way through 2 to 7 layers each have an independent error of half a rounding in
# the mean square: 0.58 times the root of their number is 3 to 5, and 5 to 8 were measured, in bf16
# as in f16. Native and torch round at the same places, except within attention; but one differing
# last bit causes many later differences, so they may be as far from each other as from f32. Uses
# the median row, since a router whose best experts are nearly equal may choose another one.
LARGEST_ERROR = 12.0

CASES: list[tuple[str, Type]] = [
    ("llama", "bf16"),
    ("gemma3", "bf16"),  # two KV groups
    ("qwen3_moe", "bf16"),
    ("mamba2", "bf16"),
    ("granite_hybrid", "bf16"),  # states beside keys and values
    ("deepseek_v2", "bf16"),
    ("bert", "bf16"),  # its result is pooled
    ("llama", "f16"),
]


@dataclass(frozen=True)
class Case:
    source: ModelSource
    vocab: int
    type: Type

    def run(self, kind: str, activation_type: Type) -> Array:
        """The rows of prompts of many lengths, and of a token after each."""
        run = make_executor(kind, self.source, activation_type=activation_type)
        batches = new_batches(run)
        random = np.random.default_rng(0)
        prompts = {i: random.integers(0, self.vocab, n).tolist() for i, n in enumerate((1, 61, 17))}
        outputs = run(batches.step(prompts, all_logits=True))
        if "pooled" in outputs:
            return outputs["pooled"]
        after = run(batches.step({i: [prompt[0]] for i, prompt in prompts.items()}))
        return np.concatenate([outputs["logits"], after["logits"]])


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, activation_type = request.param
    directory: Path = tmp_path_factory.mktemp(family)
    # Weights that both types hold exactly: torch has matrices in the type of activations.
    reference = make(family, directory, activation_type)
    return Case(ModelSource.open(directory), reference.config.vocab_size, activation_type)


def _error(actual: Array, expected: Array, activation_type: Type) -> float:
    """The error of the median row, relative to the row, in roundings."""
    assert actual.shape == expected.shape and np.isfinite(actual).all()
    errors = np.linalg.norm(actual - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(np.median(errors)) / ROUNDING[activation_type]


def test_native_and_torch_round_alike(case: Case) -> None:
    exact = case.run("native", "f32")
    native = case.run("native", case.type)
    torch = case.run("torch-rewritten", case.type)
    errors = {
        "native, torch": _error(native, torch, case.type),
        "native, f32": _error(native, exact, case.type),
        "torch, f32": _error(torch, exact, case.type),
    }
    assert {pair: error for pair, error in errors.items() if error > LARGEST_ERROR} == {}
    assert errors["native, f32"] > 0.5, "nothing was rounded"


def test_names_of_types(tmp_path: Path) -> None:
    """The types of activations and of the KV cache of a model with weights in f32."""
    make("llama", tmp_path)
    built = build(ModelSource.open(tmp_path), BuildOptions(max_model_len=64))
    expected = {
        ("auto", "f32", "float32", "float"): ("f32", "f32"),
        ("bf16", "bfloat16"): ("bf16", "bf16"),  # f32 would hold no more of values in bf16
        ("f16", "float16", "half"): ("f16", "f32"),
    }
    for names, types in expected.items():
        for name in names:
            config = build_config(EngineConfig, {"model": str(tmp_path), "dtype": name})
            options = ExecutorSizes.of(built, config, "float32").executor_options(config, 1)
            assert (options.activation_type, options.kv_cache_dtype) == types, name


def test_an_engine_generates_in_bf16(tmp_path: Path) -> None:
    """The greedy tail chooses the same tokens as logits do."""
    make("llama", tmp_path, "bf16")
    source = ModelSource.open(tmp_path)
    options = {"dtype": "bfloat16", "max_model_len": 64, "pack_cache": False}
    config = build_config(EngineConfig, {"model": str(tmp_path), **options})
    built = build(source, BuildOptions(max_model_len=64))
    core = EngineCore.create(built, config, "float32")
    prompt = np.random.default_rng(3).integers(0, 257, 21)
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    native = core.bindings.engine
    native.submit(1, prompt.astype(np.int32), sampling)
    tokens: list[int] = []
    while len(tokens) < 12:
        for output in native.wait(30):
            tokens += output.new_token_ids
    native.shutdown()
    run: Run = make_executor("native", source, activation_type="bf16", kv_cache_dtype="bf16")
    assert [tokens] == generate(run, new_batches(run), [prompt.tolist()], 12)
