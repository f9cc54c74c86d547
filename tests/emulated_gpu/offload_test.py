"""Weights of a device that stay in the host's memory (--cpu-offload-gb): on the emulated GPU, with
the tokens of the CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pagemill import _native
from pagemill.cli import main
from pagemill.config import ConfigError
from safetensors.numpy import load_file

from tests.parity.packed_checkpoints import Scheme, write_packed
from tests.parity.small_engine import engine, generate, generate_one, update_weights
from tests.parity.tiny_models import make

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

OPTIONS = {"dtype": "f32", "max_model_len": 64}  # in f32, so that tokens are the CPU's
PROMPTS = [[3, 5, 7, 3, 5, 7, 3], list(range(20, 41)), [9]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("llama", folder)
    return folder


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))


def planned_bytes(
    model: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> Mapping[str, int]:
    """What `pagemill plan` counts."""
    assert main(["plan", str(model), "--json", "--device", "emulated", *flags]) == 0
    return json.loads(capsys.readouterr().out)["bytes"]


@pytest.fixture(scope="module")
def most_gib(model: Path) -> float:
    """All weights that may be offloaded, which are the matrices."""
    tensors = load_file(model / "model.safetensors").values()
    return sum(tensor.nbytes for tensor in tensors if tensor.ndim > 1) / 2**30


@pytest.mark.parametrize("share", [1e-3, 0.5, 1])
@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_are_those_of_the_cpu(
    model: Path, share: float, ranks: int, most_gib: float
) -> None:
    with engine(model, device="cpu", **OPTIONS) as core:
        expected = [answer.tokens for answer in generate(core, PROMPTS, 6)]
    options: dict[str, Any] = {"tensor_parallel_size": ranks, **OPTIONS}
    offloaded = share * most_gib / ranks
    with engine(model, device="emulated", cpu_offload_gb=offloaded, **options) as core:
        assert [answer.tokens for answer in generate(core, PROMPTS, 6)] == expected


def test_weights_in_tiles_are_read_from_either_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_packed(tmp_path, Scheme("awq"))
    weights = planned_bytes(tmp_path, capsys)["weights"] / 2**30
    tokens: list[list[list[int]]] = []
    for offloaded in (0.0, 0.97 * weights):  # all but norms and at most a matrix
        options = {"dtype": "bf16", "activation_dtype": "auto", "cpu_offload_gb": offloaded}
        with engine(tmp_path, device="emulated", max_model_len=64, **options) as core:
            tokens.append([answer.tokens for answer in generate(core, PROMPTS, 6)])
    assert tokens[0] == tokens[1]


def test_the_plan_counts_both_memories(
    model: Path, most_gib: float, capsys: pytest.CaptureFixture[str]
) -> None:
    without = planned_bytes(model, capsys)
    wanted = most_gib / 2
    plan = planned_bytes(model, capsys, "--cpu-offload-gb", str(wanted))
    assert without["weights_offloaded"] == 0
    assert plan["weights_offloaded"] >= int(wanted * 2**30)
    alignment = 4096
    both = plan["weights"] + plan["weights_offloaded"]
    assert both == pytest.approx(without["weights"], abs=alignment)
    assert without["total"] - plan["total"] == without["weights"] - plan["weights"]
    assert main(["plan", str(model), "--device", "emulated", f"--cpu-offload-gb={wanted}"]) == 0
    assert "more in host memory, for the device to read" in capsys.readouterr().out


def test_sleep_and_updates_keep_weights_where_they_were(
    model: Path, most_gib: float, tmp_path: Path
) -> None:
    make("llama", tmp_path, seed=5)
    prompt = PROMPTS[1]
    expected: list[list[int]] = []
    for each in (model, tmp_path):
        with engine(each, device="cpu", **OPTIONS) as core:
            expected.append(generate_one(core, prompt, 6)[0])
    with engine(model, device="emulated", cpu_offload_gb=most_gib, **OPTIONS) as core:
        core.engine.sleep()
        core.engine.wake()
        assert generate_one(core, prompt, 6)[0] == expected[0]
        update_weights(core, model, tmp_path)
        assert generate_one(core, prompt, 6)[0] == expected[1]


def test_more_than_the_weights_is_refused(model: Path) -> None:
    with (
        pytest.raises(_native.StatusError, match=r"--cpu-offload-gb is 1 GiB, and the program has"),
        engine(model, device="emulated", cpu_offload_gb=1, **OPTIONS),
    ):
        pass


def test_weights_count_as_host_memory(
    model: Path, most_gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagemill.engine.executor_sizes.available_memory_bytes", lambda: 1000)
    with (
        pytest.raises(ConfigError, match=r"--cpu-offload-gb takes .* of host memory"),
        engine(model, device="emulated", cpu_offload_gb=most_gib, **OPTIONS),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"device": "cpu"}, "--device cpu"), ({"executor": "torch"}, "needs --executor native")],
)
def test_the_cpu_refuses(model: Path, options: dict[str, Any], reason: str) -> None:
    with (
        pytest.raises(ConfigError, match=rf"--cpu-offload-gb 2 is for a device.*{reason}"),
        engine(model, cpu_offload_gb=2, **options),
    ):
        pass
