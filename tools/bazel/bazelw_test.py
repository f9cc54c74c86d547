"""bazelw keeps the current directory within the workspace, for relative labels and paths."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "bazel 8.0.0"; else pwd; fi
"""


@pytest.mark.parametrize(
    ("typed_in", "runs_in"), [("tree/cc", "tree/cc"), ("tree", "tree"), (".", "tree")]
)
def test_directory(tmp_path: Path, typed_in: str, runs_in: str) -> None:
    (tmp_path / "tree/cc").mkdir(parents=True)
    bazelw = tmp_path / "tree/bazelw"
    shutil.copy("bazelw", bazelw)
    fake = tmp_path / "bazel"
    fake.write_text(_FAKE)
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", bazelw, "run"],
        cwd=tmp_path / typed_in,
        env={**os.environ, "BAZEL": str(fake)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == tmp_path / runs_in
