"""A connection to an engine on another machine, which the gate (`gate.py`) passes to a client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect_passed(make: Callable[[], P], path: str) -> P:
    """Takes the connection that the gate at `path` has for this client, or the next one.

    Raises:
        OSError: there is no gate, or it has ended.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gate:
        gate.setblocking(False)
        await loop.sock_connect(gate, path)
        await _readable(gate)
        _, descriptors, _, _ = socket.recv_fds(gate, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not descriptors:
        raise ConnectionRefusedError("the gate has passed no connection")
    connection = socket.socket(fileno=descriptors[0])
    connection.setblocking(False)
    _, protocol = await loop.create_connection(make, sock=connection)
    return protocol


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(connection, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
