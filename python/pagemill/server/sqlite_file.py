"""An SQLite file that several processes write.

    file = SqliteFile(path, schema, "responses")
    found = await file.run(lambda connection: connection.execute("SELECT ...").fetchone())

Each process has one thread for it. The file is opened when it is first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

PAGE_BYTES = 4096
_LOCK_TIMEOUT_S = 10.0  # for another process's transaction


class SqliteFile:
    """The file as one process sees it."""

    def __init__(
        self,
        path: str,
        schema: str,
        thread_name: str,
        set_up: Callable[[sqlite3.Connection], object] = lambda connection: None,
    ) -> None:
        """`set_up` is called for each new connection."""
        self.path = path
        self._schema = schema
        self._set_up = set_up
        self._executor = ThreadPoolExecutor(1, thread_name)
        self._connection: sqlite3.Connection | None = None  # the thread's own

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`, which runs in the file's thread, to its end if this is cancelled.

        Raises:
            sqlite3.Error, OSError: the file fails.
        """
        return await self._in_thread(lambda: work(self._opened()))

    async def close(self) -> None:
        """Closes the file, after what was begun."""
        await self._in_thread(self._close)
        self._executor.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        result = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            # The caller may close or delete what the thread works with.
            while not result.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([result])
            if not result.cancelled():
                result.exception()  # read, so that asyncio does not log it
            raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = connect(self.path, self._schema)
            self._set_up(connection)
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect(path: str, schema: str) -> sqlite3.Connection:
    """Opens the file, and creates it with the tables of `schema` unless there is one.

    Raises:
        sqlite3.Error, OSError: it cannot be used.
    """
    # What is stored is private: SQLite gives the files beside this one the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(schema)
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Writes that happen together or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise
