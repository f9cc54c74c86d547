"""The first messages of a connection between machines, those of cc/net/handshake.h, for asyncio.

    answer = await prove(connection, PROTOCOL, secret, claim)     # the client
    guest = await challenge(connection, PROTOCOL, secret)         # the server
    await guest.welcome(answer)

After them each side knows that the other one has the secret, the server knows what the client
claims, and the client what the server answers. A proof covers both nonces, the version and what the
sender says, so that none can be used again or altered. What follows is not protected.

Sockets do not block. No byte behind the handshake is read. Time limits are the caller's.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from socket import socket

_HEAD = struct.Struct("<II")  # the size of the payload, the type of the frame
_REFUSAL = struct.Struct("<Q")
_NONCE_BYTES = 32
_MAC_BYTES = 32


class _Frame(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5


class _Refusal(IntEnum):
    VERSION = 1
    SECRET = 2
    CLAIM = 3
    PROTOCOL = 4


@dataclass(frozen=True, slots=True)
class Protocol:
    """What the two sides speak: `magic` has its version and 8 bytes, `name` is part of proofs.
    Sentences say to either side what the other one is."""

    magic: bytes
    name: bytes
    claim_bytes: int
    answer_bytes: int
    other_version: str
    other_secret: str
    stranger: str

    @property
    def max_bytes(self) -> int:
        """The most bytes of a payload."""
        said = max(self.claim_bytes, self.answer_bytes) + _MAC_BYTES
        return max(self.greeting_bytes, said)

    @property
    def greeting_bytes(self) -> int:
        """Of what each side says first."""
        return len(self.magic) + _NONCE_BYTES


class HandshakeError(Exception):
    """One side refuses the other, or the other one speaks something else. The text says why."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A client that has proved that it knows the secret, and waits for an answer."""

    claim: bytes
    _connection: socket
    _protocol: Protocol
    _secret: bytes = field(repr=False)
    _greetings: tuple[bytes, bytes]

    async def welcome(self, answer: bytes) -> None:
        """Answers, with the proof that this side knows the secret, too.

        Raises:
            OSError: the connection is over.
        """
        assert len(answer) == self._protocol.answer_bytes
        mac = _mac(self._protocol, self._secret, b" server", self._greetings, answer)
        await _send(self._connection, _Frame.WELCOME, answer + mac)


async def prove(connection: socket, protocol: Protocol, secret: str, claim: bytes) -> bytes:
    """The client's side; returns what the server answers.

    Raises:
        HandshakeError: see there.
        OSError: the connection is over.
    """
    assert len(claim) == protocol.claim_bytes
    mine = _greeting(protocol)
    await _send(connection, _Frame.HELLO, mine)
    theirs = await _expect(connection, protocol, _Frame.CHALLENGE, protocol.greeting_bytes)
    if not theirs.startswith(protocol.magic):
        raise HandshakeError(protocol.other_version)
    greetings, key = (mine, theirs), secret.encode()
    mac = _mac(protocol, key, b" client", greetings, claim)
    await _send(connection, _Frame.PROOF, claim + mac)
    size = protocol.answer_bytes + _MAC_BYTES
    welcome = await _expect(connection, protocol, _Frame.WELCOME, size)
    answer, mac = welcome[:-_MAC_BYTES], welcome[-_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(protocol, key, b" server", greetings, answer)):
        raise HandshakeError(protocol.other_secret)
    return answer


async def challenge(connection: socket, protocol: Protocol, secret: str) -> Guest:
    """The server's side, up to its answer.

    Raises:
        HandshakeError: see there.
        OSError: the connection is over.
    """
    kind, theirs = await _receive(connection, protocol)
    if kind != _Frame.HELLO or len(theirs) != protocol.greeting_bytes:
        raise await _refuse(connection, _Refusal.PROTOCOL, protocol.stranger)
    if not theirs.startswith(protocol.magic):
        raise await _refuse(connection, _Refusal.VERSION, protocol.other_version)
    mine = _greeting(protocol)
    await _send(connection, _Frame.CHALLENGE, mine)
    kind, proof = await _receive(connection, protocol)
    if kind != _Frame.PROOF or len(proof) != protocol.claim_bytes + _MAC_BYTES:
        raise await _refuse(connection, _Refusal.PROTOCOL, protocol.stranger)
    greetings, key = (theirs, mine), secret.encode()
    claim, mac = proof[:-_MAC_BYTES], proof[-_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(protocol, key, b" client", greetings, claim)):
        raise await _refuse(connection, _Refusal.SECRET, protocol.other_secret)
    return Guest(claim, connection, protocol, key, greetings)


def _greeting(protocol: Protocol) -> bytes:
    return protocol.magic + secrets.token_bytes(_NONCE_BYTES)


def _mac(
    protocol: Protocol, secret: bytes, side: bytes, greetings: tuple[bytes, bytes], said: bytes
) -> bytes:
    """The proof of `side` that it said `said`; greetings are the client's and the server's."""
    return hmac.digest(secret, protocol.name + side + b"".join(greetings) + said, "sha256")


async def _refuse(connection: socket, refusal: _Refusal, sentence: str) -> HandshakeError:
    await _send(connection, _Frame.REFUSAL, _REFUSAL.pack(refusal))
    return HandshakeError(sentence)


async def _expect(connection: socket, protocol: Protocol, kind: _Frame, size: int) -> bytes:
    """The payload of the server's next frame."""
    found, payload = await _receive(connection, protocol)
    if found == _Frame.REFUSAL and len(payload) == _REFUSAL.size:
        sentences = {
            _Refusal.VERSION: protocol.other_version,
            _Refusal.SECRET: protocol.other_secret,
        }
        (refusal,) = _REFUSAL.unpack(payload)
        raise HandshakeError(sentences.get(refusal, protocol.stranger))
    if found != kind or len(payload) != size:
        raise HandshakeError(protocol.stranger)
    return payload


async def _send(connection: socket, kind: _Frame, payload: bytes) -> None:
    message = _HEAD.pack(len(payload), kind) + payload
    await asyncio.get_running_loop().sock_sendall(connection, message)


async def _receive(connection: socket, protocol: Protocol) -> tuple[int, bytes]:
    size, kind = _HEAD.unpack(await _read(connection, _HEAD.size))
    if not 0 < size <= protocol.max_bytes:
        raise HandshakeError(protocol.stranger)
    return kind, await _read(connection, size)


async def _read(connection: socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    message = b""
    while len(message) < size:
        part = await loop.sock_recv(connection, size - len(message))
        if not part:
            raise ConnectionResetError("the other side has closed the connection")
        message += part
    return message
