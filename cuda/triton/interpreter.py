"""Runs Triton kernels on the CPU, for tests: `import cuda.triton.interpreter` comes first.

Triton reads its mode when a kernel is defined. The package is in the folder that the file
PAGEMILL_TEST_TRITON names, beside it; without one, tests are skipped unless Triton is installed.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

PACKAGES = os.environ.get("PAGEMILL_TEST_TRITON", "")
if PACKAGES:
    folder = Path(PACKAGES).read_text(encoding="utf-8").strip()
    sys.path.append(str(Path(PACKAGES).resolve().with_name(folder)))
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"
