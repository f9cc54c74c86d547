"""Models on a device of a plugin, chosen by `--device`: that of the emulated GPU, whose kernels,
runtime calls and plugin are those of NVIDIA GPUs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pagemill.cli import main
from pagemill.config import ConfigError
from pagemill.engine.devices import find_plugins
from pagemill.inputs.task import Task

from tests.parity.scaled_checkpoints import SCHEMES, write_scaled
from tests.parity.small_engine import engine, generate, pool
from tests.parity.tiny_models import make, tiny_llama

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

PROMPTS = [[3, 5, 7, 3, 5, 7, 3], list(range(20, 41)), [9]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("llama", folder)
    return folder


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
        {"tensor_parallel_size": 2},
        {"kv_cache_dtype": "int4"},
        {"kv_cache_dtype": "k8v4"},
    ],
    ids=["plain", "drafts", "ranks", "int4", "k8v4"],
)
def test_greedy_tokens_are_those_of_the_cpu(model: Path, options: dict[str, Any]) -> None:
    tokens: dict[str, list[list[int]]] = {}
    for device in ("cpu", "emulated:0"):
        with engine(model, device=device, dtype="f32", max_model_len=64, **options) as core:
            tokens[device] = [answer.tokens for answer in generate(core, PROMPTS, 6)]
    assert tokens["emulated:0"] == tokens["cpu"]
    assert [len(each) for each in tokens["cpu"]] == [6, 6, 6]


def test_vectors_are_those_of_the_cpu(tmp_path: Path) -> None:
    make("bert", tmp_path)
    rows: list[npt.NDArray[np.float32]] = []
    for device in ("cpu", "emulated"):
        with engine(
            tmp_path, device=device, dtype="f32", max_model_len=64, task=Task.EMBED
        ) as core:
            rows.append(pool(core, PROMPTS, {}))
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)


def test_auto_takes_the_device_and_its_memory(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pagemill.engine")
    with engine(model, max_model_len=64) as core:
        # 4 requests of 64 tokens, in blocks of 16, and the null block.
        assert core.budget.num_blocks == max(4 * 4, 43 * 16) + 1
        assert generate(core, [[1, 2]], 2)[0].tokens
    assert "device: emulated:0, emulated GPU" in caplog.messages


def test_what_the_device_cannot_do_is_refused_at_the_start(model: Path) -> None:
    for options, name in [
        ({"tensor_parallel_size": 4}, "--tensor-parallel-size 4 needs 4 devices"),
        ({"executor": "torch"}, "--executor native"),
    ]:
        with (
            pytest.raises(ConfigError, match=f"--device emulated .*{name}"),
            engine(model, device="emulated", **options),
        ):
            pass


def test_auto_leaves_what_the_device_cannot_do_to_the_cpu(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pagemill.engine")
    with engine(model, executor="torch"):
        pass
    assert any("device: CPU (emulated needs --exec" in line for line in caplog.messages)


def test_memory_is_refused_by_numbers(model: Path) -> None:
    with (
        pytest.raises(ConfigError, match="may be used"),
        engine(model, device="emulated", kv_cache_memory_bytes="2GiB"),
    ):
        pass


def test_a_device_that_does_not_exist_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="devices 0 to 1"), engine(model, device="emulated:2"):
        pass
    with (
        pytest.raises(ConfigError, match="no plugin cuda is installed, only emulated"),
        engine(model, device="cuda"),
    ):
        pass


def test_plugins_are_listed() -> None:
    (found,) = find_plugins()
    assert (found.name, found.reason) == ("emulated", "")
    names = [(device.name, device.architecture) for device in found.devices]
    assert names == [("emulated GPU", "sm_90")] * 2


def test_an_installed_package_names_its_plugin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pagemill_toy.py").write_text(f"PLUGIN = {str(Path(PLUGIN).resolve())!r}\n")
    info = tmp_path / "pagemill_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pagemill-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pagemill.devices]\ntoy = pagemill_toy:PLUGIN\n")
    monkeypatch.delenv("PAGEMILL_DEVICE_PLUGINS")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = find_plugins()
    assert (found.name, len(found.devices)) == ("emulated", 2)


def test_doctor_shows_devices_and_kernels(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(model), "--device", "emulated"]) == 0
    out = capsys.readouterr().out
    assert "devices      emulated:0, emulated GPU, sm_90" in out
    assert "emulated: prompts are slower without cuBLASLt: the emulated cuBLASLt is not" in out
    assert "runs on      emulated:0, emulated GPU" in out
    # 136 columns are no whole tiles, and the emulated GPU has no cuBLASLt here.
    better = "unsuitable: wgmma, cublaslt_fp8, tensor_core_int8, matrix_core_f8, cublaslt"
    assert re.search(rf" linear +bf16\[\d+,96\] .*  tensor_core \({better}\)$", out, re.MULTILINE)
    assert re.search(
        rf" linear +bf16\[\d+,136\] .*  gpu \({better}, tensor_core, matrix_core\)$",
        out,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("options", "kernel"), [((), "tensor_core_int8"), (("--activation-dtype", "f32"), "gpu")]
)
def test_activations_are_rounded_if_weights_were_made_for_it(
    options: tuple[str, ...], kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scaled(tiny_llama(), tmp_path, SCHEMES["w8a8"])
    assert main(["doctor", str(tmp_path), "--device", "emulated", *options]) == 0
    assert re.search(rf" linear +bf16.* i8.*  {kernel}( |$)", capsys.readouterr().out, re.MULTILINE)
