"""What tests of the SDK archive share."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

SDK = os.environ.get("PAGEMILL_TEST_SDK", "")


def unpack(folder: Path) -> Path:
    """Unpacks the archive in `folder`, which it returns."""
    with tarfile.open(SDK) as archive:
        archive.extractall(folder, filter="data")
    return folder


def output(*command: str | Path) -> str:
    """Runs a command.

    Returns:
        What it printed.

    Raises:
        AssertionError: it failed; with all that it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
