"""The whole check, with the emulated GPU in place of hardware."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tools.gpu import main, tiny_models
from tools.gpu.pack import PYTHON
from tools.gpu.reference import Reference
from tools.gpu.tree import VERSION, headers_digest

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
CONFORMANCE = os.environ.get("PAGEMILL_TEST_PLUGIN_CONFORMANCE", "")
pytestmark = pytest.mark.skipif(
    not (PLUGIN and CONFORMANCE),
    reason="PAGEMILL_TEST_EMULATED_GPU and PAGEMILL_TEST_PLUGIN_CONFORMANCE name no programs",
)

_SIZES = [
    "--model=tiny",
    "--experts-model=tiny-experts",
    "--states-model=tiny-states",
    "--latents-model=tiny-latents",
    "--matrix=64",
    "--context=8",
    "--tokens=10",
    "--batches=1,2",
]
_DEVICE = ["--device=emulated:0", "--torch-device=cpu", "--prompts=16,24", "--jobs=2"]
_TINY = ["deepseek_v2-latents64", "llama", "llama-fp8-block-128"]
_ONLY = "conformance/Add,tiny/*/bf16,limits/*,host/*,bf16/*"


def _describe(folder: Path, headers: str, python: str) -> None:
    described = {"version": VERSION, "headers": headers, "python": python, "tiny": _TINY}
    (folder / "pack.json").write_text(json.dumps(described))


@pytest.fixture(name="pack", scope="module")
def _pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With few models; the extension is there already."""
    folder = tmp_path_factory.mktemp("pack")
    shutil.copy(PLUGIN, folder / "plugin.so")
    shutil.copy(CONFORMANCE, folder / "plugin_conformance")
    for made in tiny_models.make_all(_TINY, folder / "tiny"):
        assert "left out" not in made
    _describe(folder, headers_digest(), PYTHON)
    return folder


def test_everything_passes(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "results" / "gpu.json"
    command = [f"--pack={pack}", f"--output={output}", f"--work={tmp_path}", f"--only={_ONLY}"]
    assert main.main([*command, *_SIZES, *_DEVICE]) == 0, capsys.readouterr().out
    items = json.loads(output.read_text())["items"]
    assert {name: item["status"] for name, item in items.items()} == dict.fromkeys(
        (
            "build/extension",
            "conformance/Add",
            *(f"tiny/{name}/bf16" for name in _TINY),
            "limits/device",
            "host/checkpoint",
            "host/steps",
            "bf16/checkpoint",
            "bf16/reference",
            "bf16/anchors",
        ),
        "passed",
    )
    said = [record["what"] for record in items["bf16/anchors"]["records"]]
    assert all(record.get("passed", True) for record in items["bf16/anchors"]["records"])
    compared, prompts = ["parity"] * 3, ["prefill"] * 2
    sampled = [*["sampled"] * 4, "scored"]
    decoded = ["decode", *prompts, "decode"]
    assert said == ["ready", "graphs", "memory", *compared, *sampled, *decoded]
    text = output.with_suffix(".md").read_text()
    assert "| conformance | 1 of 1 |" in text and "| bf16: memory |" in text
    assert text.count("%") == 2 + 2 * 2 + 1  # shares, and targets of one request and of prompts
    capsys.readouterr()
    # All have results now.
    assert main.main([*command, *_SIZES, *_DEVICE]) == 0
    assert " passed, " not in capsys.readouterr().out


def test_the_bound_of_fp8_is_that_of_rounded_activations(pack: Path):
    fp8, bf16 = (
        Reference.load(pack / "tiny" / name).bf16_error for name in ("llama-fp8-block-128", "llama")
    )
    assert 3 * bf16 < fp8 < 20 * bf16


def test_a_pack_of_another_tree_is_refused(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _describe(tmp_path, headers_digest(), "3.1")
    assert main.main([f"--pack={tmp_path}", f"--work={tmp_path}"]) == 2
    assert "the pack is for Python 3.1, and this is" in capsys.readouterr().err
    _describe(tmp_path, "", PYTHON)
    file = tmp_path / "pack.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        archive.add(tmp_path / "pack.json", "pack.json")
    assert main.main([f"--pack={file}", f"--work={tmp_path}"]) == 2
    assert "another state of this tree: make it with" in capsys.readouterr().err
    assert main.main([f"--pack={tmp_path / 'none'}", f"--work={tmp_path}"]) == 2
    assert "there is no pack" in capsys.readouterr().err


def test_items_are_listed(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """In the order of their worth; every op of the table has a check."""
    assert main.main([f"--pack={pack}", f"--work={tmp_path}", "--list"]) == 0
    names = capsys.readouterr().out.split()
    stages = list(dict.fromkeys(name.split("/")[0] for name in names))
    measured = ["bf16", "fp8", "awq", "experts", "states"]
    measured += ["latents", "nvfp4", "experts-fp8", "offload"]
    assert stages == ["build", "conformance", "tiny", "limits", "host", *measured]
    assert sum(name.startswith("conformance/") for name in names) >= 38
