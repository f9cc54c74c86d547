"""The check runs from end to end on the CPU, and reports if there is nothing to check."""

import json
from pathlib import Path

import pytest
import torch
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tools.gpu import main, models


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_skips(capsys: pytest.CaptureFixture[str]):
    assert main.main([]) == 0
    assert capsys.readouterr().out == "skipped: torch sees no GPU\n"


def test_the_whole_check_on_the_cpu(tmp_path: Path):
    arguments = ["--device=cpu", "--models=tiny", "--matrix=64", "--context=40", "--batches=1,3"]
    output = tmp_path / "results" / "out.json"
    assert main.main([*arguments, "--keep-extension", f"--output={output}"]) == 0
    report = json.loads(output.read_text())
    assert report["passed"] and report["device"]["copy_bytes_per_s"] > 0
    tiny = report["models"]["tiny"]
    assert tiny["parity"]["f32_error"] < 1e-5 < tiny["parity"]["bf16_error"]
    assert [step["batch"] for step in tiny["speed"]["decode"]] == [1, 3]
    assert all(step["tokens_per_s"] > 0 for step in tiny["speed"]["decode"])


@pytest.mark.parametrize("name", models.SHAPES)
def test_checkpoints_have_every_tensor_of_their_model(name: str, tmp_path: Path):
    """With the sizes shrunk, the layers kept: a program can be built of each."""
    small = {"hidden_size": 64, "intermediate_size": 32, "head_dim": 16, "vocab_size": 50}
    config = dict(models.SHAPES[name]) | small
    models.write_checkpoint(config, tmp_path, "cpu")
    built = build(ModelSource.open(tmp_path), BuildOptions())
    layers = config["num_hidden_layers"]
    assert built.program_text.count("op paged_attention") == layers
