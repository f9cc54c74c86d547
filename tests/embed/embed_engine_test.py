"""`cc/examples/embed_engine` writes the same text without Python as the offline API."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pagemill
import pytest
from pagemill.cli.program import run

MODEL = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
BINARY = os.environ.get("PAGEMILL_TEST_EMBED_ENGINE", "")

pytestmark = pytest.mark.skipif(
    not MODEL or not BINARY, reason="PAGEMILL_TEST_SMOLLM2_GGUF or _EMBED_ENGINE is not set"
)

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "In 1969, it's said that 12 men weren't ready;  they'd",
]
MAX_TOKENS = 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert run(["export", MODEL, "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def expected() -> list[str]:
    with pagemill.LLM(MODEL, max_model_len=512, max_num_seqs=4) as llm:
        outputs = llm.generate(PROMPTS, temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
    return [output.choices[0].text for output in outputs]


@pytest.mark.parametrize("index", range(len(PROMPTS)))
def test_same_text(exported: Path, expected: list[str], index: int) -> None:
    prompt = PROMPTS[index]
    done = subprocess.run(
        [BINARY, str(exported), prompt, str(MAX_TOKENS)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode("utf-8", "replace")
    assert text == prompt + expected[index] + "\n"


def test_bazel_run_resolves_relative_paths_where_it_is_typed(tmp_path: Path) -> None:
    """`bazel run //python:pagemill -- export ...`, then `bazel run //cc/examples/embed_engine`."""
    (tmp_path / "model.gguf").symlink_to(MODEL)
    typed_in = {**os.environ, "BUILD_WORKING_DIRECTORY": str(tmp_path)}
    programs = [
        os.environ[f"PAGEMILL_TEST_{name}_PROGRAM"] for name in ("PAGEMILL", "EMBED_ENGINE")
    ]
    arguments = [("export", "model.gguf", "-o", "a/b"), ("a/b", "The capital of France is", "1")]
    for program, words in zip(programs, arguments, strict=True):
        done = subprocess.run([program, *words], env=typed_in, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"The capital of France is Paris\n"


def test_no_python_in_the_process(exported: Path) -> None:
    libraries = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    assert "python" not in libraries
    assert "torch" not in libraries


def test_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [BINARY, str(tmp_path / "none"), "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert str(tmp_path / "none") in done.stderr
    assert "Traceback" not in done.stderr and "check failed" not in done.stderr
