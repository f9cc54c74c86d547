"""The address of the operator's routes: a Unix socket, or a port."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator, Sequence

from pagemill.config import ConfigError
from pagemill.config.server import admin_port
from pagemill.server.access.caller import Scope
from pagemill.server.access.keys import ApiKey
from pagemill.server.transport.http_server import listen
from pagemill.server.transport.unix_listener import unix_listener


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
    has mode 0600, which limits it to this user.

    Raises:
        OSError: the address cannot be listened on.
    """
    if address is None:
        yield None
        return
    port = admin_port(address)
    if port is None:
        with unix_listener(address, 0o600) as listener:
            yield listener
        return
    with contextlib.closing(listen(*port, "--admin-address")) as listener:
        yield listener
