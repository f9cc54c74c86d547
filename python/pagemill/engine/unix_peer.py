"""Which user is at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any


def is_this_user(peer: Any) -> bool:
    """Whether the process at the other end of `peer`, a socket or what asyncio shows of one, is
    this user's, as far as the system says."""
    if not hasattr(socket, "SO_PEERCRED"):  # the folder's mode has to do
        return True
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid == os.getuid()
