"""Tests of pagemill.engine.remote.handshake, against itself and against cc/net/handshake.h."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from pagemill import _native
from pagemill.engine.remote.handshake import (
    HandshakeError,
    Protocol,
    challenge,
    prove,
)
from pagemill.engine.reserved_port import reserved_port

SECRET = "what both machines know"
PROTOCOL = Protocol(b"PMTESTS1", b"a test", 3, 5, "another version", "another secret", "a stranger")
# That of ranks on several machines: cc/comm/tcp/join_messages.h.
NODES = Protocol(
    b"PMNODES1", b"pagemill node", 120, 320, "another version", "another secret", "a stranger"
)


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    with client, server:
        client.setblocking(False)
        server.setblocking(False)
        yield client, server


async def _serve(server: socket.socket, protocol: Protocol, secret: str) -> bytes:
    """Answers whatever is claimed with zeros."""
    guest = await challenge(server, protocol, secret)
    assert SECRET not in repr(guest)
    await guest.welcome(bytes(protocol.answer_bytes))
    return guest.claim


def run(
    client: Protocol = PROTOCOL, server: Protocol = PROTOCOL, secret: str = SECRET
) -> tuple[object, object]:
    """What both sides return or raise; the server has SECRET."""

    async def main() -> tuple[object, object]:
        with pair() as (near, far):
            async with asyncio.timeout(60):
                proving = prove(near, client, secret, bytes(range(client.claim_bytes)))
                serving = _serve(far, server, SECRET)
                first, second = await asyncio.gather(proving, serving, return_exceptions=True)
                return first, second

    return asyncio.run(main())


def test_both_sides_know_what_the_other_says() -> None:
    assert run() == (bytes(5), bytes(range(3)))
    assert run(secret="") != (bytes(5), bytes(range(3)))


@pytest.mark.parametrize(
    ("client", "secret", "words"),
    [
        (PROTOCOL, "what only one knows", "another secret"),
        (PROTOCOL, "", "another secret"),
        (Protocol(b"PMTESTS2", b"a test", 3, 5, "version", "", ""), SECRET, "version"),
        (Protocol(b"PMTESTS1", b"b test", 3, 5, "", "secret", ""), SECRET, "secret"),
        (Protocol(b"PMTESTS1", b"a test", 4, 5, "", "", "stranger"), SECRET, "stranger"),
    ],
)
def test_both_sides_learn_why_not(client: Protocol, secret: str, words: str) -> None:
    near, far = run(client, secret=secret)
    assert isinstance(near, HandshakeError) and words in str(near)
    assert isinstance(far, HandshakeError)


def _answer_to(garbage: bytes) -> tuple[object, bytes]:
    """What the server raises, and what it has said."""

    async def main() -> tuple[object, bytes]:
        with pair() as (near, far):
            near.send(garbage)
            near.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(60):
                (error,) = await asyncio.gather(
                    _serve(far, PROTOCOL, SECRET), return_exceptions=True
                )
            said = b""
            with contextlib.suppress(BlockingIOError):
                said = near.recv(1 << 16)
            return error, said

    return asyncio.run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff\x01\0\0\0",
        b"\0\0\0\0\x01\0\0\0",
        b"\x28\0\0\0\x03\0\0\0" + bytes(40),
    ],
)
def test_garbage_is_not_read_further(garbage: bytes) -> None:
    error, said = _answer_to(garbage)
    assert isinstance(error, HandshakeError)
    assert len(said) in (0, 16)  # nothing, or a refusal


def test_a_connection_that_ends_is_an_error_of_the_system() -> None:
    error, said = _answer_to(b"\x28\0")
    assert isinstance(error, ConnectionError) and not said


def test_a_proof_of_one_connection_is_none_of_another() -> None:
    async def relay(near: socket.socket, far: socket.socket, kept: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        while part := await loop.sock_recv(near, 1 << 16):
            kept.append(part)
            await loop.sock_sendall(far, part)

    async def overheard() -> list[bytes]:
        """What a client sends."""
        kept: list[bytes] = []
        with pair() as (client, near), pair() as (far, server):
            relays = [
                asyncio.create_task(relay(near, far, kept)),
                asyncio.create_task(relay(far, near, [])),
            ]
            async with asyncio.timeout(60):
                await asyncio.gather(
                    prove(client, PROTOCOL, SECRET, b"abc"), _serve(server, PROTOCOL, SECRET)
                )
            for task in relays:
                task.cancel()
            await asyncio.gather(*relays, return_exceptions=True)
        return kept

    error, said = _answer_to(b"".join(asyncio.run(overheard())))
    assert isinstance(error, HandshakeError) and "secret" in str(error)
    assert said.endswith(b"\x02" + bytes(7))


def world(rank: int, port: int, version: str = "7") -> _native.NodesWorld:
    """A rank of two on two machines, whose first messages are the native ones."""
    return _native.NodesWorld(
        rank,
        None,
        master=f"127.0.0.1:{port}",
        secret=SECRET,
        tensor=1,
        pipeline=2,
        num_nodes=2,
        version=version,
        model=bytes(32),
        options=bytes(32),
        number=1,
    )


def claim(version: bytes) -> bytes:
    """That of rank 1; see cc/comm/tcp/join_messages.cc."""
    numbers = (1, 1, 0)
    return version.ljust(32, b"\0") + bytes(64) + b"".join(n.to_bytes(8, "little") for n in numbers)


def test_a_native_server_understands_this_client() -> None:
    async def join(port: int, secret: str, version: bytes) -> str:
        with socket.socket() as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
            answer = await prove(connection, NODES, secret, claim(version))
            return answer.rstrip(b"\0").decode()

    async def main() -> None:
        with reserved_port() as port:
            zero = world(0, port)  # listens
        waiting = asyncio.create_task(asyncio.to_thread(_wait, zero))
        async with asyncio.timeout(60):
            with pytest.raises(HandshakeError, match="another secret"):
                await join(port, "what one rank knows", b"7")
            assert "node 1 has version 8 of Pagemill" in await join(port, SECRET, b"8")
            assert await join(port, SECRET, b"7") == ""
            await waiting

    asyncio.run(main())


def test_this_server_understands_a_native_client() -> None:
    async def main() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            one = world(1, listener.getsockname()[1])
            waiting = asyncio.create_task(asyncio.to_thread(_wait, one))
            async with asyncio.timeout(60):
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                with connection:
                    guest = await challenge(connection, NODES, SECRET)
                    await guest.welcome(b"it is a test".ljust(320, b"\0"))
                    assert "it is a test" in await waiting
                    return guest.claim

    assert asyncio.run(main()) == claim(b"7")


def _wait(member: _native.NodesWorld) -> str:
    """Why it cannot go on; "" if it can, or another rank ended after it had joined."""
    try:
        member.wait_for_all(60.0)
    except _native.StatusError as error:
        return error.message
    return ""
