"""Models on the CPU as a SYCL device, chosen by `--device`: kernels and runtime are those of Intel
GPUs, and so is the code of the plugin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pagemill.cli import main
from pagemill.inputs.task import Task

from tests.parity.small_engine import engine, generate, pool
from tests.parity.tiny_models import make

PLUGIN = os.environ.get("PAGEMILL_TEST_SYCL_CPU_PLUGIN", "")
CPU_RUNTIME = os.environ.get("PAGEMILL_TEST_SYCL_CPU_RUNTIME", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_SYCL_CPU_PLUGIN names no plugin")

PROMPTS = [[3, 5, 7, 3, 5, 7, 3], list(range(20, 41)), [9]]


# The runtime reads its variable once: all tests of this process have the same.
@pytest.fixture(scope="module", autouse=True)
def _device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))
        patch.setenv("OCL_ICD_FILENAMES", str(Path(CPU_RUNTIME).resolve()))
        patch.setenv("SYCL_CACHE_TRACE", "1")
        patch.delenv("SYCL_CACHE_PERSISTENT", raising=False)  # set by default
        yield


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}),
        ("gemma3", {}),
        ("qwen3_moe", {}),
        ("deepseek_v2", {}),
        ("mamba2", {}),
        ("llama", {"tensor_parallel_size": 2}),
        ("qwen3_moe", {"tensor_parallel_size": 2}),
        ("qwen3_moe", {"tensor_parallel_size": 2, "enable_expert_parallel": True}),
    ],
    ids=[
        "llama",
        "llama-drafts",
        "gemma3",
        "qwen3_moe",
        "deepseek_v2",
        "mamba2",
        "llama-ranks",
        "qwen3_moe-ranks",
        "qwen3_moe-whole-experts",
    ],
)
def test_greedy_tokens_are_those_of_the_cpu(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    make(family, tmp_path)
    tokens: dict[str, list[list[int]]] = {}
    for device in ("cpu", "sycl_cpu:0"):
        with engine(tmp_path, device=device, dtype="f32", max_model_len=64, **options) as core:
            tokens[device] = [answer.tokens for answer in generate(core, PROMPTS, 6)]
    assert tokens["sycl_cpu:0"] == tokens["cpu"]
    assert [len(each) for each in tokens["cpu"]] == [6, 6, 6]


def test_kernels_that_were_compiled_before_are_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make("llama", tmp_path)
    with engine(tmp_path, device="sycl_cpu:0", dtype="f32", max_model_len=64) as core:
        generate(core, PROMPTS, 2)
    assert "[Persistent Cache]: using cached device binary" in capfd.readouterr().err


def test_vectors_are_those_of_the_cpu(tmp_path: Path) -> None:
    make("bert", tmp_path)
    rows: list[npt.NDArray[np.float32]] = []
    for device in ("cpu", "sycl_cpu"):
        with engine(
            tmp_path, device=device, dtype="f32", max_model_len=64, task=Task.EMBED
        ) as core:
            rows.append(pool(core, PROMPTS, {}))
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)


def test_doctor_shows_the_device_and_its_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("llama", tmp_path)
    assert main(["doctor", str(tmp_path), "--device", "sycl_cpu"]) == 0
    out = capsys.readouterr().out
    assert "runs on      sycl_cpu:0, " in out
    assert ", OpenCL" in out
    # The plugin finds the library beside its runtime.
    assert re.search(r" x linear .* onednn$", out, re.MULTILINE), out
