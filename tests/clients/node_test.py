"""Packages of npm: each file in node/ is a test of one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NODE = os.environ.get("PAGEMILL_TEST_NODE", "")
FILES = sorted((Path(__file__).parent / "node").glob("*_test.cjs"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_package(file: Path, openai_url: str) -> None:
    run = subprocess.run(
        [NODE, file],
        env={**os.environ, "OPENAI_URL": openai_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout
