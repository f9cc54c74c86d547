"""Responses that later requests may continue.

    store = ResponseStore(StoreFile(path, max_bytes))
    await store.put(owner, response_id, conversation, response)
    found = await store.get(owner, response_id)

A response is stored with its whole conversation, so that it can be continued when the responses
before it are evicted or deleted. A response belongs to the key that made it: for other keys it does
not exist.

A response that runs in the background may have its events stored as they come: they are numbered,
and go with the response.
What fails is logged, and the response is not stored.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from pagemill.server.responses.store_file import StoreFile, stored_size
from pagemill.server.sqlite_file import transaction

LOST_AFTER_S = 60.0
"""A running response of which its process has said nothing for so long has failed with it."""
_LOGGER = logging.getLogger("pagemill.server")
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
    """The responses in a file."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

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
        size = stored_size(conversation, response) + len(item_ids) * _ITEM_BYTES

        def insert(connection: sqlite3.Connection) -> bool:
            seen = time.monotonic() if running else None
            with transaction(connection):
                if not self._file.make_room(connection, size):
                    return False
                connection.execute(
                    "INSERT INTO responses (id, owner, conversation, response, seen_running)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (response_id, owner, conversation, response, seen),
                )
                _index(connection, response_id, item_ids)
            return True

        stored = await self._file.run(insert)
        if stored is False:
            _LOGGER.warning(
                "%s is not stored: it has %d bytes, and --response-store-bytes is %d",
                response_id,
                size,
                self._file.max_bytes,
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

        return await self._file.run(select)

    async def response_with(self, owner: str, item_id: str) -> bytes | None:
        """The response of `owner` whose output has the item; None if there is none."""

        def select(connection: sqlite3.Connection) -> bytes | None:
            query = (
                "SELECT responses.response FROM items JOIN responses"
                " ON responses.id = items.response WHERE items.id = ? AND owner = ?"
            )
            row = connection.execute(query, (item_id, owner)).fetchone()
            return None if row is None else row[0]

        return await self._file.run(select)

    async def still_wanted(self, owner: str, response_id: str) -> bool:
        """Says that the response runs; False if it was cancelled, deleted or evicted."""

        def update(connection: sqlite3.Connection) -> bool:
            query = f"UPDATE responses SET seen_running = ? {_RUNNING}"
            return connection.execute(query, (time.monotonic(), response_id, owner)).rowcount > 0

        return await self._file.run(update) is not False  # a file that fails ends nothing

    async def add_events(self, owner: str, response_id: str, first: int, data: bytes) -> bool:
        """Stores events of a running response, `first` on; False if it runs no longer, or if there
        is no room."""

        def insert(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                if not self._file.make_room(connection, stored_size(data)):
                    return False
                query = (
                    "INSERT INTO events (response, first, data)"
                    f" SELECT id, ?, ? FROM responses {_RUNNING}"
                )
                done = connection.execute(query, (first, data, response_id, owner))
            return done.rowcount > 0

        return bool(await self._file.run(insert))

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

        return await self._file.run(select)

    async def end(
        self, owner: str, response_id: str, response: bytes, item_ids: Sequence[str] = ()
    ) -> bool:
        """Replaces a running response by its end; False if it runs no longer."""

        def update(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                self._file.make_room(
                    connection, stored_size(response) + len(item_ids) * _ITEM_BYTES
                )
                query = f"UPDATE responses SET seen_running = NULL, response = ? {_RUNNING}"
                done = connection.execute(query, (response, response_id, owner))
                if done.rowcount > 0:
                    _index(connection, response_id, item_ids)
            return done.rowcount > 0

        return bool(await self._file.run(update))

    async def delete(self, owner: str, response_id: str) -> bool:
        """Deletes the response; False if `owner` has no such one."""

        def delete(connection: sqlite3.Connection) -> bool:
            query = "DELETE FROM responses WHERE id = ? AND owner = ?"
            return connection.execute(query, (response_id, owner)).rowcount > 0

        return bool(await self._file.run(delete))


def _index(connection: sqlite3.Connection, response_id: str, item_ids: Sequence[str]) -> None:
    rows = [(item_id, response_id) for item_id in item_ids]
    connection.executemany("INSERT OR IGNORE INTO items (id, response) VALUES (?, ?)", rows)
