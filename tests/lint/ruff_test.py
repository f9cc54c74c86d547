"""Python follows the rules in pyproject.toml."""

import subprocess
import sys

from tests.source_tree import ROOT


def test_ruff_check():
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet"]
    command += ["--output-format=concise", str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
