"""Tests of pagemill.engine.reserved_port."""

import socket

import pytest

from pagemill.engine.reserved_port import reserved_port


def test_a_server_listens_and_no_other_socket_gets_the_port() -> None:
    with reserved_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for _ in range(2):  # a server that is started again
            with (
                socket.create_server(("127.0.0.1", port)),
                socket.create_connection(("127.0.0.1", port)) as client,
            ):
                assert client.getpeername()[1] == port
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
