"""A port for a process that is started with its number.

with reserved_port() as port:
    subprocess.Popen([*command, f"--port={port}"])
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator


@contextlib.contextmanager
def reserved_port() -> Generator[int]:
    """A free TCP port of 127.0.0.1, which the system assigns to no other socket meanwhile.

    The socket that holds it does not listen, so connections are refused until a server listens at
    the port: with SO_REUSEADDR, as servers do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
