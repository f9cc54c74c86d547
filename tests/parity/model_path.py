"""Paths of the real models of the parity tests.

Files come from environment variables, which the Bazel targets set; without them the tests skip.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def model_path(variable: str) -> Path:
    """The file or directory that the environment names; skips the test if it names none."""
    value = os.environ.get(variable, "")
    if not value and "TEST_SRCDIR" not in os.environ:
        pytest.skip(f"{variable} is not set")
    path = Path(value)
    assert path.exists(), f"{variable}={value}"
    return path
