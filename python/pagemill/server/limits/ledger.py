"""What the keys of one server have used lately, in memory that its API processes share.

    ledger = Ledger(path, process=2)            # of several; Ledger() has memory of its own
    with ledger.account("web") as account:      # no other process changes it meanwhile
        account.running[ledger.process] += 1

A file that is mapped, and locked for the microseconds of a change: a limit holds for the whole
server, however connections are distributed, and a process that is killed leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import sha256

MAX_PROCESSES = 64
_SLOTS = 8192
_DIGEST_BYTES = 16
_EMPTY = bytes(_DIGEST_BYTES)
# A name's digest; requests, tokens, time; requests that run, by process.
_RECORD = struct.Struct(f"{_DIGEST_BYTES}s3d{MAX_PROCESSES}I")


@dataclass(slots=True)
class Account:
    """What one key has used. Everything is 0 at first."""

    requests: float
    """Requests that still count; as time passes, they count less and less."""
    tokens: float
    updated: float
    """`time.monotonic()` of all processes, when the two numbers above were true."""
    running: list[int]
    """Requests in progress, by process."""


class Ledger:
    """Accounts by name. If there are more names than room, the one unused for longest is lost."""

    def __init__(self, path: str | None = None, process: int = 0, slots: int = _SLOTS) -> None:
        """`path` is a file of `create`; `process` numbers those that have it open."""
        self.process = process
        self._slots = slots
        self._lock: int | None = None
        if path is None:
            self._memory = mmap.mmap(-1, slots * _RECORD.size)
        else:
            self._lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self._memory = mmap.mmap(self._lock, slots * _RECORD.size)
            self._forget_process()

    @staticmethod
    def create(path: str) -> None:
        """Makes the file that processes share."""
        with open(path, "xb") as file:
            file.truncate(_SLOTS * _RECORD.size)

    @contextlib.contextmanager
    def account(self, name: str) -> Generator[Account]:
        """The account of `name`, to be changed. An exception leaves it as it was."""
        digest = sha256(name.encode()).digest()[:_DIGEST_BYTES]
        with self._locked():
            offset = self._find(digest)
            _, requests, tokens, updated, *running = _RECORD.unpack_from(self._memory, offset)
            account = Account(requests, tokens, updated, running)
            yield account
            self._write(offset, digest, account)

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        if self._lock is None:
            yield
            return
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _find(self, digest: bytes) -> int:
        """The offset of the record with `digest`, or of a new one."""
        first = int.from_bytes(digest[:8]) % self._slots
        for probe in range(self._slots):
            offset = (first + probe) % self._slots * _RECORD.size
            found = self._memory[offset : offset + _DIGEST_BYTES]
            if found == digest:
                return offset
            if found == _EMPTY:
                break
        else:
            offset = self._oldest()
        self._write(offset, digest, Account(0.0, 0.0, 0.0, [0] * MAX_PROCESSES))
        return offset

    def _oldest(self) -> int:
        """The offset of the record that has been unused for longest."""

        def age(offset: int) -> tuple[bool, float]:
            _, _, _, updated, *running = _RECORD.unpack_from(self._memory, offset)
            return any(running), updated

        return min(range(0, self._slots * _RECORD.size, _RECORD.size), key=age)

    def _write(self, offset: int, digest: bytes, account: Account) -> None:
        values = (account.requests, account.tokens, account.updated, *account.running)
        _RECORD.pack_into(self._memory, offset, digest, *values)

    def _forget_process(self) -> None:
        """Requests of a process that had this number, and was killed, do not run any more."""
        with self._locked():
            column = _RECORD.size - 4 * (MAX_PROCESSES - self.process)
            for offset in range(column, self._slots * _RECORD.size, _RECORD.size):
                if self._memory[offset : offset + 4] != b"\0\0\0\0":
                    self._memory[offset : offset + 4] = b"\0\0\0\0"
