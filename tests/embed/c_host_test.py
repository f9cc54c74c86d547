"""A C host computes what the offline API computes, from an exported folder that was moved."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pagemill
import pytest
from pagemill.cli.program import run

MODEL = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
HOST = os.environ.get("PAGEMILL_TEST_C_HOST", "")

pytestmark = pytest.mark.skipif(
    not MODEL or not HOST, reason="PAGEMILL_TEST_SMOLLM2_GGUF or _C_HOST is not set"
)

PROMPT = "The capital of France is the city of light, and that of Italy, far to the south, is"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "first"
    assert run(["export", MODEL, "--output", str(folder)]) == 0
    return folder.rename(folder.with_name("second"))


def test_real_model(moved: Path, tmp_path: Path) -> None:
    with pagemill.LLM(MODEL, max_model_len=256, max_num_seqs=2) as llm:
        (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=8, ignore_eos=True)
    prompt = [str(token) for token in output.prompt_token_ids]
    assert 16 < len(prompt) < 32
    done = subprocess.run(
        [HOST, moved / "model.program", tmp_path / "session", *prompt],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[-1] for line in lines] == ["0", "0", "16"]
    assert lines[0][:-1] == lines[1][:-1] == lines[2][:-1]
    pairs = [word.split(":") for word in lines[0][:-2]]
    assert [int(token) for token, _ in pairs] == list(output.choices[0].token_ids)
    assert all(-20 < float(logprob) <= 0 for _, logprob in pairs)


def test_a_program_that_reaches_outside_of_its_folder_is_refused(
    moved: Path, tmp_path: Path
) -> None:
    text = (moved / "model.program").read_text()
    assert "\nfile 1 model.gguf\n" in text
    changed = tmp_path / "changed.program"
    changed.write_text(text.replace("file 1 model.gguf", "file 1 ../model.gguf"))
    done = subprocess.run(
        [HOST, changed, tmp_path / "session", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "a relative path must not have '..'" in done.stderr
