"""Models on the CPU as a SYCL device, by the engine and the plugin that serves Intel GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pagemill.cli import main

from tests.parity.small_engine import engine, generate
from tests.parity.tiny_models import make

PLUGIN = os.environ.get("PAGEMILL_TEST_SYCL_PLUGIN", "")
CPU_RUNTIME = os.environ.get("PAGEMILL_TEST_SYCL_CPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_SYCL_PLUGIN names no plugin")

PROMPTS = [[3, 5, 7, 3, 5, 7, 3], list(range(20, 41)), [9]]


# The runtime reads its variables once: all tests of this process have the same.
@pytest.fixture(scope="module", autouse=True)
def _device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))
        patch.setenv("OCL_ICD_FILENAMES", str(Path(CPU_RUNTIME).resolve()))
        patch.setenv("ONEAPI_DEVICE_SELECTOR", "opencl:cpu")
        yield


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}),
        ("gemma3", {}),
        ("qwen3_moe", {}),
    ],
    ids=["llama", "llama-drafts", "gemma3", "qwen3_moe"],
)
def test_greedy_tokens_are_those_of_the_cpu(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    make(family, tmp_path)
    tokens: dict[str, list[list[int]]] = {}
    for device in ("cpu", "sycl:0"):
        with engine(tmp_path, device=device, dtype="f32", max_model_len=64, **options) as core:
            tokens[device] = [answer.tokens for answer in generate(core, PROMPTS, 6)]
    assert tokens["sycl:0"] == tokens["cpu"]
    assert [len(each) for each in tokens["cpu"]] == [6, 6, 6]


def test_doctor_shows_the_device_and_its_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("llama", tmp_path)
    assert main(["doctor", str(tmp_path), "--device", "sycl"]) == 0
    out = capsys.readouterr().out
    assert "runs on      sycl:0, " in out
    assert ", OpenCL" in out
