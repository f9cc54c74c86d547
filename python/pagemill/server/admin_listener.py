"""The address of the operator's routes: a Unix socket, or a port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Generator, Sequence

from pagemill.config import ConfigError
from pagemill.config.server import admin_port
from pagemill.server.caller import Scope
from pagemill.server.http_server import listen
from pagemill.server.keys import ApiKey


def check_admin_address(address: str | None, keys: Sequence[ApiKey]) -> None:
    """Checks that a port of the operator's routes needs a key, and that there is one.

    Raises:
        ConfigError: the address is a port, and no key has the scope `admin`.
    """
    if address is None or admin_port(address) is None:
        return
    if not any(Scope.ADMIN in key.caller.scopes for key in keys):
        raise ConfigError(
            f"--admin-address {address} is a port, which needs a key with the scope `admin`"
            " (--api-key-file); a path needs none: it is a socket that only this user can open"
        )


@contextlib.contextmanager
def operator_listener(address: str | None) -> Generator[socket.socket | None]:
    """A socket that listens on `address`, which has been checked; None without one. A Unix socket
    has mode 0600, which decides who may use it.

    Raises:
        OSError: the address cannot be listened on.
    """
    if address is None:
        yield None
        return
    port = admin_port(address)
    listener = listen(*port) if port else _listen_on_path(address)
    try:
        yield listener
    finally:
        listener.close()
        if port is None:
            _remove_socket(address)


def _listen_on_path(path: str) -> socket.socket:
    if _is_listening(path):
        raise OSError(errno.EADDRINUSE, f"cannot listen on {path}: another server does")
    _remove_socket(path)  # of a server that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from error
    finally:
        os.umask(umask)
    listener.listen()
    listener.setblocking(False)
    return listener


def _is_listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def _remove_socket(path: str) -> None:
    """Removes a socket; a file of another kind stays."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
