"""`import pagemill` imports nothing heavy; `pagemill.LLM` is found when asked for."""

import subprocess
import sys

import pytest

import pagemill

HEAVY = {"starlette", "numpy", "tokenizers", "torch", "transformers", "uvicorn"}


def _modules_after(statement: str) -> set[str]:
    command = [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in result.stdout.split()}


def test_import_is_light():
    assert not _modules_after("import pagemill") & HEAVY


def test_building_a_program_needs_no_torch():
    statement = "import pagemill.runner.build, pagemill.models.llama, pagemill.models.gemma3"
    assert not _modules_after(statement) & {"torch", "transformers"}


def test_llm_is_exported():
    assert pagemill.__version__
    assert pagemill.LLM.__name__ == "LLM"
    with pytest.raises(AttributeError, match="no attribute 'LLm'"):
        _ = pagemill.LLm
