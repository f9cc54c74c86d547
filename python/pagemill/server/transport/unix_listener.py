"""Sockets that listen on a path, for programs of the same machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Generator

_MAX_PATH_BYTES = 107  # of sockaddr_un, on Linux


@contextlib.contextmanager
def unix_listener(path: str, mode: int) -> Generator[socket.socket]:
    """Listens on `path`, and removes the socket afterwards; `mode` limits which users may
    connect.

    Raises:
        OSError: the path cannot be listened on.
    """
    listener = _listen(path, mode)
    try:
        yield listener
    finally:
        listener.close()
        _remove_socket(path)


def _listen(path: str, mode: int) -> socket.socket:
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise OSError(
            errno.ENAMETOOLONG,
            f"cannot listen on {path}: a socket's path has at most {_MAX_PATH_BYTES} bytes",
        )
    if _is_listening(path):
        raise OSError(errno.EADDRINUSE, f"cannot listen on {path}: another server does")
    _remove_socket(path)  # of a server that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777 & ~mode)
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
        probe.setblocking(False)  # EAGAIN: as many wait as may, and it accepts none
        return probe.connect_ex(path) in (0, errno.EAGAIN)


def _remove_socket(path: str) -> None:
    """Removes a socket; a file of another kind stays."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
