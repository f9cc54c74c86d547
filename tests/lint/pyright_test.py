"""The package has the types that it says: pyright, in the build that carries its own Node."""

import subprocess
import sys

from tests.source_tree import ROOT


def test_types():
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    result = subprocess.run(
        [*command, "--project", str(ROOT)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
