"""Scripts that run an environment's interpreter are the same in every checkout, so that checkouts
share what a disk cache has of their tests."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = os.environ["PAGEMILL_TEST_INTERPRETERS"].split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_folder_of_the_checkout_is_named(script: str, tmp_path: Path) -> None:
    folder = Path(script).resolve().parent
    assert str(folder) not in Path(script).read_text(encoding="utf-8")
    link = tmp_path / "python"
    link.symlink_to(Path(script).absolute())
    done = subprocess.run(
        [link, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).parent == folder
