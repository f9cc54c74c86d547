"""What tests find when pytest_main.py runs them."""

import os
import subprocess
import sys
from pathlib import Path

_IMPORTS_ARE_NOT_COLLECTED = """
import gc
DURING_IMPORT = gc.isenabled()

def test_it():
    assert not DURING_IMPORT
    assert gc.isenabled() and gc.get_freeze_count() > 1000
    assert not any(value is globals() for value in gc.get_objects())
"""


def test_garbage_collection_skips_imports(tmp_path: Path) -> None:
    file = tmp_path / "a_test.py"
    file.write_text(_IMPORTS_ARE_NOT_COLLECTED)
    ours = ("TEST_TMPDIR", "TESTBRIDGE_TEST_ONLY", "XML_OUTPUT_FILE")
    done = subprocess.run(
        [sys.executable, "tools/bazel/pytest_main.py", tmp_path, file],
        env={key: value for key, value in os.environ.items() if key not in ours},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
