"""The SQLite file of stored responses and conversations, which all API processes share.

It is never larger than its bound: what was used longest ago is evicted, responses and
conversations alike. Each process has one thread for the file. What fails is logged.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from pagemill.config import ConfigError
from pagemill.server.sqlite_file import PAGE_BYTES, SqliteFile, connect

T = TypeVar("T")

_LOGGER = logging.getLogger("pagemill.server")
_FIXED_PAGES = 24  # of the tables themselves, and what a row leaves of its last pages
_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
  age INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  conversation BLOB NOT NULL,
  response BLOB NOT NULL,
  seen_running REAL  -- time.monotonic() of all processes; null: it has ended
);
CREATE TABLE IF NOT EXISTS events (
  response TEXT NOT NULL,
  first INTEGER NOT NULL,  -- the number of the first of the events
  data BLOB NOT NULL,
  PRIMARY KEY (response, first)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
  id TEXT PRIMARY KEY,  -- of an item of the response's output
  response TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_of ON items (response);
CREATE TRIGGER IF NOT EXISTS parts_go AFTER DELETE ON responses BEGIN
  DELETE FROM events WHERE response = OLD.id;
  DELETE FROM items WHERE response = OLD.id;
END;
CREATE TABLE IF NOT EXISTS conversations (
  used INTEGER PRIMARY KEY AUTOINCREMENT,
  age INTEGER NOT NULL,  -- of the newest response when it was used last
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  about BLOB NOT NULL,
  items BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS conversations_age ON conversations (age, used);
"""


class StoreFile:
    """Opens its file when it is first needed."""

    def __init__(self, path: str, max_bytes: int) -> None:
        """`max_bytes` bounds the file; its write-ahead log may have as much again for a while."""
        self.max_bytes = max_bytes
        self._file = SqliteFile(path, _SCHEMA, "responses", self._bound)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of `work`; None, and a line in the log, if the file fails."""
        try:
            return await self._file.run(work)
        except (sqlite3.Error, OSError) as error:
            _LOGGER.error("stored responses: %s: %s", self._file.path, error)
            return None

    async def close(self) -> None:
        """Closes the file, after what was begun."""
        await self._file.close()

    def make_room(self, connection: sqlite3.Connection, size: int) -> bool:
        """Evicts what is oldest until `size` bytes fit; False if they never will."""
        room = self.max_bytes - _FIXED_PAGES * PAGE_BYTES
        if size > room:
            return False
        while True:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if (pages - free) * PAGE_BYTES + size <= room:
                return True
            if not _evict_oldest(connection):
                return False

    def _bound(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {self.max_bytes // PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_size_limit = {self.max_bytes}")


def stored_size(*contents: bytes) -> int:
    """Bytes in the file, with what pages need themselves."""
    return sum(map(len, contents)) * 257 // 256


def create(path: str) -> None:
    """Creates the file unless there is one.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        connect(path, _SCHEMA).close()
    except OSError as error:
        raise ConfigError(f"--response-store {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise ConfigError(f"--response-store {path}: {error}") from error


def _evict_oldest(connection: sqlite3.Connection) -> bool:
    """False if there is nothing left."""
    (response,) = connection.execute("SELECT min(age) FROM responses").fetchone()
    query = "SELECT age, used FROM conversations ORDER BY age, used LIMIT 1"
    conversation = connection.execute(query).fetchone()
    if response is not None and (conversation is None or response <= conversation[0]):
        connection.execute("DELETE FROM responses WHERE age = ?", (response,))
        return True
    if conversation is not None:
        connection.execute("DELETE FROM conversations WHERE used = ?", (conversation[1],))
    return conversation is not None
