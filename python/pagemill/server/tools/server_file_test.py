"""`--mcp-servers`: files that can be used, and a sentence about each that cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagemill.config import ConfigError
from pagemill.server.tools.server_file import read_server_file, read_values
from pagemill.server.tools.servers import open_servers


def test_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(" Bearer x\n")
    path = tmp_path / "servers.yaml"
    path.write_text(
        f"""
weather:
  url: https://weather.example:9000/mcp
  header_files: {{Authorization: {secret}}}
  allowed_tools: [get_weather]
  timeout: 20
files:
  command: [python, -m, file_tools]
  require_approval: true
"""
    )
    weather, files = read_server_file(str(path))
    assert (weather.label, weather.timeout, files.timeout) == ("weather", 20.0, 30.0)
    assert read_values(weather.header_files) == {"Authorization": "Bearer x"}
    assert files.command == ["python", "-m", "file_tools"] and files.require_approval
    servers = open_servers(str(path))
    assert list(servers.by_label) == ["weather", "files"]
    assert open_servers(None).by_label == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no server"),
        ("a: {}", "either `url` or `command`"),
        ("a: 5", "Expected `object`"),
        ("a: {url: http://x/mcp, command: [x]}", "either `url` or `command`"),
        ("a: {url: ftp://x/mcp}", "http:// or https://"),
        ("a: {url: 'http:///mcp'}", "http:// or https://"),
        ("a: {url: 'http://user:secret@x/mcp'}", "header_files"),
        ("a: {command: []}", "length >= 1"),
        ("a: {command: [x], header_files: {a: b}}", "`header_files` go with `url`"),
        ("a: {url: http://x/mcp, env_files: {a: b}}", "`env_files` with `command`"),
        ("a: {url: http://x/mcp, header_files: {a: /does/not/exist}}", "No such file"),
        ("a: {url: http://x/mcp, timeout: 0}", "timeout"),
        ("a: {url: http://x/mcp, max_result_bytes: 0}", "max_result_bytes"),
        ("a: {url: http://x/mcp, max_concurrent_calls: x}", "max_concurrent_calls"),
        ("a: {url: http://x/mcp, other: 1}", "other"),
        ("'a b': {url: http://x/mcp}", "a name is"),
        ("a__b: {url: http://x/mcp}", "a name is"),
        ("a_: {url: http://x/mcp}", "a name is"),
        (f"{'a' * 65}: {{url: http://x/mcp}}", "a name is"),
        ("a: {url: http://x/mcp, label: b}", "label"),
    ],
)
def test_files_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_server_file(str(path))
    assert message in str(caught.value) and "secret" not in str(caught.value)


def test_a_missing_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("a: {url: http://x/mcp}")
    monkeypatch.delitem(sys.modules, "pagemill.server.tools.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ConfigError, match=r"pip install 'pagemill\[mcp\]'"):
        open_servers(str(path))
