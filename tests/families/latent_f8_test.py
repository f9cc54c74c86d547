"""Latent attention over a cache in fp8: the numbers of the torch executor, near those of a cache in
f32; and the engine, whose tokens depend on the prompt alone. `tests/parity/latent_cache_test.py`
moves and saves such a cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from pagemill.config import ConfigError, EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.families.families import make
from tests.parity.executors import make_executor, new_batches
from tests.parity.small_engine import engine, generate, random_prompt
from tests.parity.tiny_models import make as make_tiny

Array = npt.NDArray[np.float32]
Dtype = Literal["f32", "bf16", "fp8"]
Folder = Callable[[str], Path]

# The largest move of the median row of logits: root of the mean square, of that of all logits. A
# code is off by 1/40 on average, bf16 by 1/16 of that; logits by 0.02 to 0.06, and 0.001 to 0.003.
# Other experts, and other chosen tokens of V3.2, are chosen in some rows, which move by more.
FAMILIES = {
    "deepseek_v2": 0.08,
    "deepseek_v2_lite": 0.08,
    "deepseek_v3": 0.08,
    "deepseek_v32": 0.2,
    "deepseek_v4": 0.08,
}
PROMPT, TOKENS = random_prompt(3, 90, 190), 12


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            make(name, made[name])
        return made[name]

    return folder


def _logits(path: Path, kind: str, dtype: Dtype) -> Array:
    """Of a prompt in chunks beside another, and of decoded tokens."""
    run = make_executor(kind, ModelSource.open(path), kv_cache_dtype=dtype)
    batches = new_batches(run)
    prompt = PROMPT[:61]
    rows: list[Array] = []
    for chunk in (prompt[:37], prompt[37:-2], prompt[-2:-1], prompt[-1:]):
        step = {1: PROMPT[61:70], 0: chunk}
        rows.append(run(batches.step(step, all_logits=True))["logits"][9:])
    return np.concatenate(rows)


def _move(logits: Array, exact: Array) -> float:
    squares = np.square(logits - exact).mean(1) / np.square(exact).mean()
    return float(np.sqrt(np.median(squares)))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_logits_are_those_of_torch_and_near_exact_ones(name: str, folder: Folder) -> None:
    path = folder(name)
    exact = _logits(path, "native", "f32")
    moves = {dtype: _move(_logits(path, "native", dtype), exact) for dtype in ("bf16", "fp8")}
    assert 2 * moves["bf16"] < moves["fp8"] < FAMILIES[name]
    # Sums in another order move a latent across the middle of two codes now and then.
    torch = _logits(path, "torch", "fp8")
    assert _move(_logits(path, "native", "fp8"), torch) < moves["fp8"] / 4
    assert _move(_logits(path, "native-reference", "fp8"), torch) < moves["fp8"] / 4


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v32"])
def test_tokens_depend_on_the_prompt_alone(name: str, folder: Folder) -> None:
    """Not on chunks of it, on what was found in the prefix cache, or on other requests."""
    options: dict[str, Any] = {"kv_cache_dtype": "fp8", "max_model_len": 128}
    with engine(folder(name), max_num_batched_tokens=256, **options) as core:
        (whole,) = generate(core, [PROMPT], TOKENS)
        (again,) = generate(core, [PROMPT], TOKENS)
    with engine(folder(name), max_num_batched_tokens=16, **options) as core:
        chunked, *_ = generate(core, [PROMPT, PROMPT[5:40], [7, 9]], TOKENS)
        found, *_ = generate(core, [PROMPT, PROMPT[3:]], TOKENS)
    assert whole.cached == 0
    assert again.cached >= 80
    assert found.cached >= 80
    assert whole.tokens == again.tokens == chunked.tokens == found.tokens


def _sizes(path: Path, dtype: str) -> ExecutorSizes:
    config = build_config(EngineConfig, {"model": str(path), "kv_cache_dtype": dtype})
    return ExecutorSizes.of(build(ModelSource.open(path), BuildOptions()), config, "float32")


def test_names_are_those_of_the_layout(folder: Folder, tmp_path: Path) -> None:
    latents = folder("deepseek_v2")
    names = {_sizes(latents, name).kv_cache_dtype for name in ("fp8", "fp8_e4m3", "fp8_ds_mla")}
    assert names == {"fp8"}
    with pytest.raises(ConfigError, match="int8 is not for latent attention: use fp8"):
        _sizes(latents, "int8")
    make_tiny("llama", tmp_path)
    with pytest.raises(ConfigError, match="fp8_ds_mla is for models with latent attention"):
        _sizes(tmp_path, "fp8_ds_mla")
