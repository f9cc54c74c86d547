"""Sockets on a path: one server has it at a time, and one that was killed leaves it to the next."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagemill.server.transport.unix_listener import unix_listener


@pytest.fixture(name="path")
def _path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        yield Path(folder) / "clients"


def _client() -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    return client


def test_one_server_has_a_path(path: Path) -> None:
    with unix_listener(str(path), 0o666):
        with pytest.raises(OSError, match="another server does"), unix_listener(str(path), 0o666):
            pass
        assert path.is_socket()
    assert not path.exists()
    with unix_listener(str(path), 0o666), _client() as client:
        client.connect(str(path))


def test_a_server_that_accepts_none_keeps_its_path(path: Path) -> None:
    """A second server does not wait until it accepts a connection."""
    with unix_listener(str(path), 0o666) as listener, contextlib.ExitStack() as clients:
        listener.listen(1)
        with contextlib.suppress(BlockingIOError):
            while True:
                clients.enter_context(_client()).connect(str(path))
        with pytest.raises(OSError, match="another server does"), unix_listener(str(path), 0o666):
            pass


def test_the_socket_of_a_server_that_was_killed_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    with unix_listener(str(path), 0o600), _client() as client:
        client.connect(str(path))


def test_files_of_other_kinds_stay(path: Path) -> None:
    path.write_text("notes")
    with pytest.raises(OSError, match="cannot listen on"), unix_listener(str(path), 0o666):
        pass
    assert path.read_text() == "notes"
    long = f"{path}{'a' * 108}"
    with pytest.raises(OSError, match="at most 107 bytes"), unix_listener(long, 0o666):
        pass
