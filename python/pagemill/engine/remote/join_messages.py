"""What an engine says when it joins a server on another machine, and the server's answer: claim and
answer of a handshake. Sizes are fixed; numbers are little endian."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from pagemill.engine.remote.handshake import Protocol

MAX_VERSION_CHARS = 48
RUN_BYTES = 16
_CLAIM = struct.Struct(f"<{MAX_VERSION_CHARS}s32s32sQ{RUN_BYTES}s")
_ANSWER = struct.Struct("<Q320s")

JOIN_PROTOCOL = Protocol(
    magic=b"PMJOINS1",
    name=b"pagemill engine",
    claim_bytes=_CLAIM.size,
    answer_bytes=_ANSWER.size,
    other_version="the other machine has a version of Pagemill that joins in another way: install"
    " one version on all machines",
    other_secret="the other machine does not have the same secret (--node-secret-file)",
    stranger="what is at the other end is no server or engine of Pagemill that joins machines"
    " (--data-parallel-address, --data-parallel-rpc-port)",
)


class Verdict(IntEnum):
    """What a server thinks of an engine."""

    JOINED = 0
    LATER = 1
    """It may join when what stands against it has passed."""
    REFUSED = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """What an engine is."""

    version: str
    """Of Pagemill and of its messages; at most `MAX_VERSION_CHARS`."""
    model: str
    """Its program, its files and the key of its watermark, as hexadecimal digits of a digest."""
    options: str
    """Likewise the options that all machines must have in common."""
    engine: int
    """Its number among those of the server."""
    run: bytes
    """`RUN_BYTES` random bytes, other ones in each process."""

    def encode(self) -> bytes:
        """As bytes of the handshake."""
        digests = bytes.fromhex(self.model), bytes.fromhex(self.options)
        return _CLAIM.pack(self.version.encode("ascii"), *digests, self.engine, self.run)

    @classmethod
    def decode(cls, claim: bytes) -> Claim:
        """Of `JOIN_PROTOCOL.claim_bytes` bytes, any."""
        version, model, options, engine, run = _CLAIM.unpack(claim)
        return cls(_text(version), model.hex(), options.hex(), engine, run)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server thinks, and why the engine may not join, "" if it may."""

    verdict: Verdict
    reason: str = ""

    def encode(self) -> bytes:
        """As bytes of the handshake; a long reason is cut."""
        return _ANSWER.pack(self.verdict, self.reason.encode("ascii", "replace"))

    @classmethod
    def decode(cls, answer: bytes) -> Answer:
        """Of `JOIN_PROTOCOL.answer_bytes` bytes.

        Raises:
            ValueError: there is no such verdict.
        """
        verdict, reason = _ANSWER.unpack(answer)
        return cls(Verdict(verdict), _text(reason))


def _text(padded: bytes) -> str:
    """Printable ASCII, up to the first byte that is something else."""
    text = padded.decode("latin-1")
    end = next((i for i, each in enumerate(text) if not " " <= each <= "~"), len(text))
    return text[:end]
