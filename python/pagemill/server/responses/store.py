"""Responses that later requests may continue, in an SQLite file that all API processes share.

    store = ResponseStore(path, max_bytes)
    await store.put(owner, response_id, conversation, response)
    found = await store.get(owner, response_id)

A response is stored with its whole conversation, so that it can be continued when the responses
before it are evicted or deleted. The file is never larger than `max_bytes`: the oldest responses
are evicted. A response belongs to the key that made it: for other keys it does not exist.

A response that runs in the background may have its events stored as they come: they are numbered,
and go with the response.

Each process has one thread for the file. What fails is logged, and the response is not stored.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pagemill.config import ConfigError
from pagemill.server.sqlite_file import PAGE_BYTES, SqliteFile, connect, transaction

T = TypeVar("T")

LOST_AFTER_S = 60.0
"""A running response of which its process has said nothing for so long has failed with it."""
_LOGGER = logging.getLogger("pagemill.server")
_FIXED_PAGES = 20  # of the tables themselves, and what a row leaves of its last pages
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
"""
_ITEM_BYTES = 300  # of an item's id in its table and index
_MAX_CHUNKS = 16  # of events that are read at a time
_RUNNING = "WHERE id = ? AND owner = ? AND seen_running IS NOT NULL"


class Stored(NamedTuple):
    """A response, and the items that it answered, as JSON."""

    conversation: bytes
    response: bytes
    idle_s: float | None = None
    """For how long its process has not said that it runs; None: it has ended."""


class StoredEvents(NamedTuple):
    """Events of a response in their order."""

    chunks: list[tuple[int, bytes]]
    """Several events each, after the number of the first of them."""
    idle_s: float | None
    """See `Stored`. None, and no chunks: there will be none."""


def _idle_s(seen: float) -> float:
    """The time since `seen`; endless if the machine was started again since then."""
    idle_s = time.monotonic() - seen
    return idle_s if idle_s >= 0 else math.inf


class ResponseStore:
    """Opens its file when it is first needed."""

    def __init__(self, path: str, max_bytes: int) -> None:
        """`max_bytes` bounds the file; its write-ahead log may have as much again for a while."""
        self._max_bytes = max_bytes
        self._file = SqliteFile(path, _SCHEMA, "responses", self._bound)

    async def put(
        self,
        owner: str,
        response_id: str,
        conversation: bytes,
        response: bytes,
        *,
        item_ids: Sequence[str] = (),
        running: bool = False,
    ) -> bool:
        """Stores a response of `owner`, which may still be `running`; False if it cannot, as the
        log says. `item_ids` are of its output."""
        size = _size(conversation, response) + len(item_ids) * _ITEM_BYTES

        def insert(connection: sqlite3.Connection) -> bool:
            seen = time.monotonic() if running else None
            with transaction(connection):
                if not self._make_room(connection, size):
                    return False
                connection.execute(
                    "INSERT INTO responses (id, owner, conversation, response, seen_running)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (response_id, owner, conversation, response, seen),
                )
                _index(connection, response_id, item_ids)
            return True

        stored = await self._run(insert)
        if stored is False:
            _LOGGER.warning(
                "%s is not stored: it has %d bytes, and --response-store-bytes is %d",
                response_id,
                size,
                self._max_bytes,
            )
        return bool(stored)

    async def get(self, owner: str, response_id: str) -> Stored | None:
        """The response, if `owner` has such a one."""

        def select(connection: sqlite3.Connection) -> Stored | None:
            query = (
                "SELECT conversation, response, seen_running FROM responses"
                " WHERE id = ? AND owner = ?"
            )
            row = connection.execute(query, (response_id, owner)).fetchone()
            if row is None:
                return None
            conversation, response, seen = row
            return Stored(conversation, response, None if seen is None else _idle_s(seen))

        return await self._run(select)

    async def response_with(self, owner: str, item_id: str) -> bytes | None:
        """The response of `owner` whose output has the item; None if there is none."""

        def select(connection: sqlite3.Connection) -> bytes | None:
            query = (
                "SELECT responses.response FROM items JOIN responses"
                " ON responses.id = items.response WHERE items.id = ? AND owner = ?"
            )
            row = connection.execute(query, (item_id, owner)).fetchone()
            return None if row is None else row[0]

        return await self._run(select)

    async def still_wanted(self, owner: str, response_id: str) -> bool:
        """Says that the response runs; False if it was cancelled, deleted or evicted."""

        def update(connection: sqlite3.Connection) -> bool:
            query = f"UPDATE responses SET seen_running = ? {_RUNNING}"
            return connection.execute(query, (time.monotonic(), response_id, owner)).rowcount > 0

        return await self._run(update) is not False  # a file that fails ends nothing

    async def add_events(self, owner: str, response_id: str, first: int, data: bytes) -> bool:
        """Stores events of a running response, `first` on; False if it runs no longer, or if there
        is no room."""

        def insert(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                if not self._make_room(connection, _size(data)):
                    return False
                query = (
                    "INSERT INTO events (response, first, data)"
                    f" SELECT id, ?, ? FROM responses {_RUNNING}"
                )
                done = connection.execute(query, (first, data, response_id, owner))
            return done.rowcount > 0

        return bool(await self._run(insert))

    async def events(self, owner: str, response_id: str, after: int) -> StoredEvents | None:
        """Some of the events behind number `after`; None if `owner` has no such response."""

        def select(connection: sqlite3.Connection) -> StoredEvents | None:
            query = "SELECT seen_running FROM responses WHERE id = ? AND owner = ?"
            row = connection.execute(query, (response_id, owner)).fetchone()
            if row is None:
                return None
            query = (
                "SELECT first, data FROM events WHERE response = ? AND first >="
                " (SELECT max(first) FROM events WHERE response = ? AND first <= ?)"
                " ORDER BY first LIMIT ?"
            )
            at = (response_id, response_id, after + 1, _MAX_CHUNKS)
            chunks = connection.execute(query, at).fetchall()
            return StoredEvents(chunks, None if row[0] is None else _idle_s(row[0]))

        return await self._run(select)

    async def end(
        self, owner: str, response_id: str, response: bytes, item_ids: Sequence[str] = ()
    ) -> bool:
        """Replaces a running response by its end; False if it runs no longer."""

        def update(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                self._make_room(connection, _size(response) + len(item_ids) * _ITEM_BYTES)
                query = f"UPDATE responses SET seen_running = NULL, response = ? {_RUNNING}"
                done = connection.execute(query, (response, response_id, owner))
                if done.rowcount > 0:
                    _index(connection, response_id, item_ids)
            return done.rowcount > 0

        return bool(await self._run(update))

    async def delete(self, owner: str, response_id: str) -> bool:
        """Deletes the response; False if `owner` has no such one."""

        def delete(connection: sqlite3.Connection) -> bool:
            query = "DELETE FROM responses WHERE id = ? AND owner = ?"
            return connection.execute(query, (response_id, owner)).rowcount > 0

        return bool(await self._run(delete))

    async def close(self) -> None:
        """Closes the file, after what was begun."""
        await self._file.close()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of `work`; None, and a line in the log, if the file fails."""
        try:
            return await self._file.run(work)
        except (sqlite3.Error, OSError) as error:
            _LOGGER.error("stored responses: %s: %s", self._file.path, error)
            return None

    def _bound(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {self._max_bytes // PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_size_limit = {self._max_bytes}")

    def _make_room(self, connection: sqlite3.Connection, size: int) -> bool:
        """Evicts the oldest responses until `size` bytes fit; False if they never will."""
        room = self._max_bytes - _FIXED_PAGES * PAGE_BYTES
        if size > room:
            return False
        while True:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if (pages - free) * PAGE_BYTES + size <= room:
                return True
            oldest = "DELETE FROM responses WHERE age = (SELECT min(age) FROM responses)"
            if connection.execute(oldest).rowcount == 0:
                return False


def _index(connection: sqlite3.Connection, response_id: str, item_ids: Sequence[str]) -> None:
    rows = [(item_id, response_id) for item_id in item_ids]
    connection.executemany("INSERT OR IGNORE INTO items (id, response) VALUES (?, ?)", rows)


def _size(*contents: bytes) -> int:
    """Bytes in the file, with what pages need themselves."""
    return sum(map(len, contents)) * 257 // 256


def create(path: str) -> None:
    """Creates the file unless there is one.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        connect(path, _SCHEMA).close()
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(f"--response-store {path}: {error}") from error
