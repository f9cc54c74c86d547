"""Batches: which there are, and which process works on which.

    batch = await queue.create(owner, tenant, request)
    held = await queue.claim("api 0")          # in any process
    batch = await queue.update(held, change)   # None: it is not this process's any longer
    await queue.release(held)

A process that works on a batch says so by its updates; a batch whose process has said nothing for
long is another process's to claim. Keys take turns: the next batch is one of the key that was
worked for least recently.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pagemill.server.batches.files import select_file
from pagemill.server.batches.folder import BatchFolder, unix_time
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.batch import (
    ENDED,
    Batch,
    BatchList,
    CreateBatchRequest,
    ListBatchesRequest,
    RequestCounts,
)
from pagemill.server.sqlite_file import transaction

LOST_AFTER_S = 60.0
WINDOW_S = 24 * 3600
_CLAIMABLE = "NOT ended AND (holder IS NULL OR seen < :lost OR seen > :now)"
_decode = msgspec.json.Decoder(Batch).decode
_encode = msgspec.json.encode


class Held(NamedTuple):
    """A batch that a process works on."""

    batch_id: str
    owner: str
    tenant: str
    holder: str


class BatchQueue:
    """The batches of all keys."""

    def __init__(self, folder: BatchFolder) -> None:
        self._folder = folder

    async def create(
        self, owner: str, tenant: str, request: CreateBatchRequest, *, total: int = 0
    ) -> Batch:
        """A new batch of `owner`. `total`: its requests, if they have been counted.

        Raises:
            ApiError: 404 for a file that `owner` does not have, 400 for one that is not for
                batches, 429 if too many batches have not ended, 507, 503.
        """
        config, now = self._folder.config, unix_time()
        batch = Batch(
            id=f"batch_{secrets.token_hex(24)}",
            endpoint=request.endpoint,
            input_file_id=request.input_file_id,
            completion_window=request.completion_window,
            created_at=now,
            expires_at=now + WINDOW_S,
            metadata=request.metadata,
            output_expires_after=request.output_expires_after,
            request_counts=RequestCounts(total),
        )

        def insert(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                file = select_file(connection, owner, request.input_file_id, "input_file_id")
                if file.purpose != "batch":
                    raise bad_request(
                        f"`input_file_id`: the file has the purpose {file.purpose!r}, not 'batch'.",
                        "input_file_id",
                    )
                _make_room(connection, config.batch_max_files_per_key, owner)
                _make_room(connection, config.batch_max_files, None)
                connection.execute(
                    "INSERT INTO batches (id, owner, tenant, input, ended, batch, seen)"
                    " VALUES (?, ?, ?, ?, 0, ?, 0)",
                    (batch.id, owner, tenant, file.id, _encode(batch)),
                )

        await self._folder.run(insert)
        return batch

    async def get(self, owner: str, batch_id: str) -> Batch:
        """The batch.

        Raises:
            ApiError: 404 if `owner` has no such one.
        """
        return await self._folder.run(lambda connection: _select(connection, owner, batch_id))

    async def page(
        self, owner: str, page: ListBatchesRequest, *, endpoint: str | None = None
    ) -> BatchList:
        """A page of the batches of `owner`, the newest first; perhaps of one endpoint only.

        Raises:
            ApiError: 404 if it begins after a batch that does not exist.
        """

        def select(connection: sqlite3.Connection) -> BatchList:
            condition, values = "owner = ?", [owner]
            if page.after is not None:
                _select(connection, owner, page.after, "after")
                condition += " AND age < (SELECT age FROM batches WHERE id = ?)"
                values = [owner, page.after]
            if endpoint is not None:
                condition += " AND json_extract(CAST(batch AS TEXT), '$.endpoint') = ?"
                values = [*values, endpoint]
            query = f"SELECT batch FROM batches WHERE {condition} ORDER BY age DESC LIMIT ?"
            rows = connection.execute(query, (*values, page.limit + 1)).fetchall()
            batches = [_decode(row[0]) for row in rows[: page.limit]]
            first, last = (batches[0].id, batches[-1].id) if batches else (None, None)
            return BatchList(batches, first, last, len(rows) > len(batches))

        return await self._folder.run(select)

    async def cancel(self, owner: str, batch_id: str) -> Batch:
        """Asks the process that works on the batch to end it; one that has ended stays as it is.

        Raises:
            ApiError: 404 if `owner` has no such one.
        """

        def update(connection: sqlite3.Connection) -> Batch:
            with transaction(connection):
                batch = _select(connection, owner, batch_id)
                if batch.status not in ENDED and batch.status != "cancelling":
                    batch.status, batch.cancelling_at = "cancelling", unix_time()
                    _store(connection, batch)
            return batch

        return await self._folder.run(update)

    async def delete(self, owner: str, batch_id: str) -> None:
        """Forgets a batch that has ended.

        Raises:
            ApiError: 404 if `owner` has no such one.
        """

        def delete(connection: sqlite3.Connection) -> None:
            _select(connection, owner, batch_id)
            connection.execute("DELETE FROM batches WHERE id = ? AND ended", (batch_id,))

        await self._folder.run(delete)

    async def claim(self, holder: str) -> Held | None:
        """The next batch that no process works on; from now on `holder` does."""

        def claim(connection: sqlite3.Connection) -> Held | None:
            now = time.monotonic()
            with transaction(connection):
                row = connection.execute(
                    f"SELECT id, owner, tenant FROM batches AS waiting WHERE {_CLAIMABLE} ORDER BY"
                    " (SELECT max(seen) FROM batches WHERE owner = waiting.owner), age LIMIT 1",
                    {"lost": now - LOST_AFTER_S, "now": now},
                ).fetchone()
                if row is None:
                    return None
                batch_id, owner, tenant = row
                connection.execute(
                    "UPDATE batches SET holder = ?, seen = ? WHERE id = ?", (holder, now, batch_id)
                )
                return Held(batch_id, owner, tenant, holder)

        return await self._folder.run(claim)

    async def others_wait(self, held: Held) -> bool:
        """Whether another key has a batch that no process works on."""

        def select(connection: sqlite3.Connection) -> bool:
            now = time.monotonic()
            row = connection.execute(
                f"SELECT 1 FROM batches WHERE {_CLAIMABLE} AND owner != :owner LIMIT 1",
                {"lost": now - LOST_AFTER_S, "now": now, "owner": held.owner},
            ).fetchone()
            return row is not None

        return await self._folder.run(select)

    async def update(self, held: Held, change: Callable[[Batch], None]) -> Batch | None:
        """Says that the holder works on the batch, and changes it; None if it is not the holder's
        any longer."""

        def update(connection: sqlite3.Connection) -> Batch | None:
            with transaction(connection):
                row = connection.execute(
                    "SELECT batch FROM batches WHERE id = ? AND holder = ? AND NOT ended",
                    (held.batch_id, held.holder),
                ).fetchone()
                if row is None:
                    return None
                batch = _decode(row[0])
                change(batch)
                _store(connection, batch)
                connection.execute(
                    "UPDATE batches SET seen = ? WHERE id = ?", (time.monotonic(), batch.id)
                )
            return batch

        return await self._folder.run(update)

    async def release(self, held: Held) -> None:
        """Lets other processes have the batch."""

        def update(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE batches SET holder = NULL WHERE id = ? AND holder = ?",
                (held.batch_id, held.holder),
            )

        await self._folder.run(update)

    async def delete_expired(self) -> None:
        """Forgets batches that ended long ago."""
        oldest = unix_time() - int(self._folder.config.batch_retention) - WINDOW_S

        def delete(connection: sqlite3.Connection) -> None:
            rows = connection.execute("SELECT batch FROM batches WHERE ended").fetchall()
            for batch in (_decode(row[0]) for row in rows):
                if batch.created_at < oldest:
                    connection.execute("DELETE FROM batches WHERE id = ?", (batch.id,))

        await self._folder.run(delete)


def _make_room(connection: sqlite3.Connection, most: int, owner: str | None) -> None:
    """Forgets the oldest batches that have ended, of `owner` or of all keys, until there is room
    for another one."""
    whose, values = ("1", ()) if owner is None else ("owner = ?", (owner,))
    (count,) = connection.execute(f"SELECT count(*) FROM batches WHERE {whose}", values).fetchone()
    if count < most:
        return
    deleted = connection.execute(
        "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE ended AND"
        f" {whose} ORDER BY age LIMIT ?)",
        (*values, count - most + 1),
    )
    if deleted.rowcount <= count - most:
        flag = "--batch-max-files" if owner is None else "--batch-max-files-per-key"
        raise ApiError(
            429,
            f"{count} batches have not ended, as many as {flag} allows; wait for one.",
            retry_after_s=60,
        )


def _store(connection: sqlite3.Connection, batch: Batch) -> None:
    connection.execute(
        "UPDATE batches SET batch = ?, ended = ? WHERE id = ?",
        (_encode(batch), batch.status in ENDED, batch.id),
    )


def _select(
    connection: sqlite3.Connection, owner: str, batch_id: str, param: str = "batch_id"
) -> Batch:
    query = "SELECT batch FROM batches WHERE id = ? AND owner = ?"
    row = connection.execute(query, (batch_id, owner)).fetchone()
    if row is None:
        raise ApiError(
            404,
            f"`{param}`: there is no batch {batch_id[:100]!r}. It is another key's, or has been"
            " forgotten (--batch-retention).",
            param,
        )
    return _decode(row[0])
