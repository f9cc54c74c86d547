"""The folder of --batch-dir: an SQLite file that lists files and batches, and the files' contents.

Every API process opens the folder. The process that started the server holds a lock on it, so that
no other server uses it, and finds what an earlier one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from pagemill.config import BatchApiConfig, ConfigError
from pagemill.server.errors import ApiError
from pagemill.server.sqlite_file import SqliteFile, connect, transaction

T = TypeVar("T")

UPLOAD = "upload"
"""`writer` of a file that a client uploads."""
_LOGGER = logging.getLogger("pagemill.server")
# EFBIG is a limit on the size of files (ulimit -f).
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_JOURNAL_BYTES = 16 * 2**20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  age INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  purpose TEXT NOT NULL,
  filename TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  writer TEXT,          -- UPLOAD, or the batch whose answers they are; null: it is complete
  touched REAL NOT NULL -- time.monotonic() of all processes, when it last grew
);
CREATE TABLE IF NOT EXISTS batches (
  age INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  ended INTEGER NOT NULL,
  batch BLOB NOT NULL,  -- protocol.batch.Batch
  holder TEXT,          -- the process that works on it
  seen REAL NOT NULL    -- time.monotonic() when a holder last said so; 0: none has
);
"""


class BatchFolder:
    """The folder as one API process sees it."""

    def __init__(self, config: BatchApiConfig, path: str) -> None:
        self.config = config
        self.path = path
        self._file = SqliteFile(_list_of(path), _SCHEMA, "batches", _bound)

    def content(self, file_id: str) -> Path:
        """The path of a file's content; `file_id` is one of the list."""
        return _contents_of(self.path) / file_id

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`, which runs in the folder's thread.

        Raises:
            ApiError: 507 if the disk is full, 503 if the folder cannot be used.
        """
        try:
            return await self._file.run(work)
        except (sqlite3.Error, OSError) as error:
            _LOGGER.error("--batch-dir %s: %s", self.path, error)
            if is_full(error):
                await self._shrink_journal()
            raise self._refusal(error) from error

    async def close(self) -> None:
        """Closes the folder."""
        await self._file.close()

    async def _shrink_journal(self) -> None:
        """Makes room for changes of the list, such as that a batch has failed."""

        def checkpoint(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        with contextlib.suppress(sqlite3.Error, OSError):
            await self._file.run(checkpoint)

    def _refusal(self, error: sqlite3.Error | OSError) -> ApiError:
        if is_full(error):
            return ApiError(
                507,
                f"The disk of the folder {self.path} (--batch-dir) is full: delete files, or ask"
                " the operator for room.",
            )
        return ApiError(
            503, f"The folder {self.path} (--batch-dir) cannot be used; the server's log says why."
        )


def is_full(error: Exception) -> bool:
    """True if the disk has no room, as far as `error` says."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    if isinstance(error, sqlite3.Error):
        # SQLite reports a limit on the size of files as a failed write.
        return error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
    return False


def folder_path(config: BatchApiConfig) -> str | None:
    """The folder's path; None if there is none."""
    return None if config.batch_dir is None else str(Path(config.batch_dir).expanduser())


@contextlib.contextmanager
def locked_folder(config: BatchApiConfig) -> Generator[None]:
    """Creates the folder unless there is one, and keeps other servers from it.

    Uploads that were not complete are gone; batches that an earlier server worked on continue.

    Raises:
        ConfigError: the folder cannot be used.
    """
    path = folder_path(config)
    if path is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            _contents_of(path).mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(f"{path}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _recover(path)
        except BlockingIOError as error:
            raise ConfigError(f"--batch-dir {path}: another server uses it") from error
        except OSError as error:
            raise ConfigError(f"--batch-dir {error.filename or path}: {error.strerror}") from error
        except sqlite3.Error as error:
            raise ConfigError(f"--batch-dir {path}: {error}") from error
        yield


def _recover(path: str) -> None:
    """Makes the list and the contents of the folder agree; no batch has a holder."""
    with contextlib.closing(connect(_list_of(path), _SCHEMA)) as connection:
        _bound(connection)
        with transaction(connection):
            connection.execute("UPDATE batches SET holder = NULL")
            connection.execute("DELETE FROM files WHERE writer = ?", (UPLOAD,))
        listed = {file_id for (file_id,) in connection.execute("SELECT id FROM files")}
        found = set(os.listdir(_contents_of(path)))
        for file_id in found - listed:
            (_contents_of(path) / file_id).unlink()
        for file_id in listed - found:
            connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def unix_time() -> int:
    """The time in seconds; it means the same after a restart of the machine."""
    return int(time.time())


def _bound(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")


def _list_of(path: str) -> str:
    return f"{path}/batches.sqlite3"


def _contents_of(path: str) -> Path:
    return Path(path) / "files"
