"""Keys from a file, and the warning about a server that everybody can use."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pagemill.config import ConfigError, ServerConfig
from pagemill.server.keys import api_keys, warn_if_open


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_API_KEY", "e1,e2")
    assert api_keys(ServerConfig()) == ("e1", "e2")
    assert api_keys(ServerConfig(api_key=("a",))) == ("a",)
    path = tmp_path / "keys"
    path.write_text("# for the web site\nf1\n\n  f2 \n")
    path.chmod(0o600)
    assert api_keys(ServerConfig(api_key_file=str(path))) == ("f1", "f2")
    assert api_keys(ServerConfig(api_key=("a",), api_key_file=str(path))) == ("a", "f1", "f2")


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"", "no key"), (b"# none\n\n", "no key"), (b"a\nb\x07\n", "key 2"), (b"\xff\n", "ASCII")],
)
def test_files_that_hold_no_keys(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=part):
        api_keys(ServerConfig(api_key_file=str(path)))
    with pytest.raises(ConfigError, match="No such file"):
        api_keys(ServerConfig(api_key_file=str(tmp_path / "absent")))


def test_a_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("secret-key\n")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        caplog.clear()
        path.chmod(mode)
        assert api_keys(ServerConfig(api_key_file=str(path))) == ("secret-key",)
        assert ("chmod 600" in caplog.text) == warned
        assert "secret-key" not in caplog.text


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [
        ("0.0.0.0", (), True),
        ("::", (), True),
        ("0.0.0.0", ("k",), False),
        ("127.0.0.1", (), False),
        ("localhost", (), False),
    ],
)
def test_open_servers(
    caplog: pytest.LogCaptureFixture, host: str, keys: tuple[str, ...], warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_if_open(host, keys)
    assert ("without an API key" in caplog.text) == warned
