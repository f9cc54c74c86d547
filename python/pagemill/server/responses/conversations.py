"""Conversations that responses continue and add to, in the file of stored responses.

    store = ConversationStore(StoreFile(path, max_bytes))
    await store.create(owner, "conv_1", about, items)
    await store.change(owner, "conv_1", lambda stored: stored._replace(items=more))

A conversation belongs to the key that made it: for other keys it does not exist. It is evicted as
if it were a response made when it was last used.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from pagemill.server.responses.store_file import StoreFile, stored_size
from pagemill.server.sqlite_file import transaction

_LOGGER = logging.getLogger("pagemill.server")
_NEWEST = "(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'responses')"


class StoredConversation(NamedTuple):
    """What is known about it, and its items, both as JSON."""

    about: bytes
    items: bytes


class ConversationStore:
    """The conversations in a file."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

    async def create(self, owner: str, name: str, stored: StoredConversation) -> bool:
        """Stores a conversation of `owner`; False if it cannot, as the log says."""

        def insert(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                return self._insert(connection, owner, name, stored)

        return bool(await self._file.run(insert))

    async def get(self, owner: str, name: str) -> StoredConversation | None:
        """The conversation, if `owner` has such a one."""
        return await self._file.run(lambda connection: _select(connection, owner, name))

    async def change(
        self, owner: str, name: str, work: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation | None:
        """Replaces the conversation by what `work`, called in the file's thread, makes of it.

        Returns:
            What is stored now; None if `owner` has no such conversation, or it cannot be stored.

        Raises:
            What `work` raises; nothing has changed then.
        """

        def replace(connection: sqlite3.Connection) -> StoredConversation | None:
            with transaction(connection):
                found = _select(connection, owner, name)
                if found is None:
                    return None
                changed = work(found)
                _delete(connection, owner, name)
                if self._insert(connection, owner, name, changed):
                    return changed
                # There is no room for the changed one, as there was for this one.
                self._insert(connection, owner, name, found)
                return None

        return await self._file.run(replace)

    async def delete(self, owner: str, name: str) -> bool:
        """Deletes the conversation; False if `owner` has no such one."""
        return bool(await self._file.run(lambda connection: _delete(connection, owner, name)))

    def _insert(
        self, connection: sqlite3.Connection, owner: str, name: str, stored: StoredConversation
    ) -> bool:
        size = stored_size(*stored)
        if not self._file.make_room(connection, size):
            _LOGGER.warning(
                "%s is not stored: it has %d bytes, and --response-store-bytes is %d",
                name,
                size,
                self._file.max_bytes,
            )
            return False
        connection.execute(
            "INSERT INTO conversations (age, id, owner, about, items)"
            f" VALUES ({_NEWEST}, ?, ?, ?, ?)",
            (name, owner, *stored),
        )
        return True


def _select(connection: sqlite3.Connection, owner: str, name: str) -> StoredConversation | None:
    query = "SELECT about, items FROM conversations WHERE id = ? AND owner = ?"
    row = connection.execute(query, (name, owner)).fetchone()
    return None if row is None else StoredConversation(*row)


def _delete(connection: sqlite3.Connection, owner: str, name: str) -> bool:
    query = "DELETE FROM conversations WHERE id = ? AND owner = ?"
    return connection.execute(query, (name, owner)).rowcount > 0
