"""Tests of pagemill.engine.secret_file."""

from pathlib import Path

import pytest

from pagemill.config import ConfigError
from pagemill.engine.secret_file import read_secret

FLAG = "--kv-transfer-secret-file"


def test_a_secret_is_the_files_line(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(" 0123456789abcdef\n")
    assert read_secret(FLAG, str(path)) == "0123456789abcdef"
    assert read_secret(FLAG, "") == ""


@pytest.mark.parametrize("content", [b"two\nlines", b"\xff\xfe", b"a" * 4097])
def test_other_files_are_refused_without_their_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--kv-transfer-secret-file .*ASCII") as refused:
        read_secret(FLAG, str(path))
    assert content.decode("latin-1") not in str(refused.value)


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: No such file"):
        read_secret(FLAG, str(tmp_path / "absent"))
