"""Options of TCP sockets between machines."""

import socket

_TIMEOUT_S = 30
_PROBE_S = 10


def set_connection_options(connection: socket.socket) -> None:
    """Sends tokens at once, and ends the connection if the other machine does not acknowledge bytes
    or, while nothing is sent, probes for half a minute."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TIMEOUT_S * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _TIMEOUT_S // _PROBE_S)
