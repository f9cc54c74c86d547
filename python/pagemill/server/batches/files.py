"""Files in the folder: what each key has, and how large all are together.

    writer = await files.create(owner, "batch", "requests.jsonl", UPLOAD)
    await writer.write(b"...")
    found = await writer.complete(expires_after_s=None)

A file belongs to the key that made it: for other keys it does not exist. It exists for its key
when it is complete.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pagemill.server.batches.folder import UPLOAD, BatchFolder, unix_time
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.file import FileList, FileObject, ListFilesRequest, Purpose
from pagemill.server.sqlite_file import transaction

MAX_FILENAME_CHARS = 255
_UPLOAD_LOST_AFTER_S = 3600.0
_COLUMNS = "id, bytes, created, expires, filename, purpose"


class OpenFile(NamedTuple):
    """A file that is being written."""

    id: str
    filename: str
    size: int


class BatchFiles:
    """The files of all keys."""

    def __init__(self, folder: BatchFolder) -> None:
        self.folder = folder

    async def create(self, owner: str, purpose: Purpose, filename: str, writer: str) -> FileWriter:
        """A new file of `owner`, which `writer` (UPLOAD, or a batch) fills.

        Raises:
            ApiError: 400 if `owner` has too many files, 507 if there is no room, 503.
        """
        config, file_id = self.folder.config, f"file-{secrets.token_hex(24)}"
        now = unix_time()
        row = (file_id, owner, purpose, filename[-MAX_FILENAME_CHARS:], now, now, writer)
        opened = FileWriter(self, file_id, 0)

        def insert(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                if _count(connection, owner) >= config.batch_max_files_per_key:
                    raise bad_request(
                        f"There are {config.batch_max_files_per_key} files of this API key, the"
                        " most it may have (--batch-max-files-per-key): delete some.",
                    )
                if _count(connection) >= config.batch_max_files:
                    raise ApiError(
                        507,
                        f"There are {config.batch_max_files} files, the most this server keeps"
                        " (--batch-max-files): delete some.",
                    )
                connection.execute(
                    "INSERT INTO files (id, owner, purpose, filename, bytes, created, expires,"
                    " writer, touched) VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?)",
                    (*row, time.monotonic()),
                )
                opened.open(os.O_CREAT | os.O_EXCL)

        return await self._opened(opened, insert)

    async def reopen(self, file: OpenFile, size: int) -> FileWriter:
        """Continues a file that is being written, after its first `size` bytes."""

        opened = FileWriter(self, file.id, size)

        def open_again(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE files SET bytes = ? WHERE id = ?", (size, file.id))
            opened.open()

        return await self._opened(opened, open_again)

    async def _opened(
        self, writer: FileWriter, work: Callable[[sqlite3.Connection], None]
    ) -> FileWriter:
        try:
            await self.folder.run(work)
        except BaseException:
            writer.close()
            raise
        return writer

    async def open_files(self, writer: str) -> list[OpenFile]:
        """The files that `writer` has begun, the oldest first."""

        def select(connection: sqlite3.Connection) -> list[OpenFile]:
            query = "SELECT id, filename, bytes FROM files WHERE writer = ? ORDER BY age"
            return [OpenFile(*row) for row in connection.execute(query, (writer,))]

        return await self.folder.run(select)

    async def get(self, owner: str, file_id: str) -> FileObject:
        """The file.

        Raises:
            ApiError: 404 if `owner` has no such one.
        """
        return await self.folder.run(lambda connection: select_file(connection, owner, file_id))

    async def content(self, owner: str, file_id: str) -> Path:
        """The path of the file's content.

        Raises:
            ApiError: 404 if `owner` has no such one.
        """
        return self.folder.content((await self.get(owner, file_id)).id)

    async def page(self, owner: str, page: ListFilesRequest) -> FileList:
        """A page of the files of `owner`.

        Raises:
            ApiError: 404 if it begins after a file that does not exist.
        """
        is_later, order = ("<", "DESC") if page.order == "desc" else (">", "ASC")

        def select(connection: sqlite3.Connection) -> FileList:
            condition, values = "owner = ? AND writer IS NULL", [owner]
            if page.purpose is not None:
                condition, values = f"{condition} AND purpose = ?", [*values, page.purpose]
            if page.after is not None:
                select_file(connection, owner, page.after, "after")
                condition += f" AND age {is_later} (SELECT age FROM files WHERE id = ?)"
                values = [*values, page.after]
            query = f"SELECT {_COLUMNS} FROM files WHERE {condition} ORDER BY age {order} LIMIT ?"
            rows = connection.execute(query, (*values, page.limit + 1)).fetchall()
            files = [_file(row) for row in rows[: page.limit]]
            first, last = (files[0].id, files[-1].id) if files else (None, None)
            return FileList(files, first, last, len(rows) > len(files))

        return await self.folder.run(select)

    async def delete(self, owner: str, file_id: str) -> None:
        """Deletes a file.

        Raises:
            ApiError: 404 if `owner` has no such one, 409 if a batch needs it.
        """

        def delete(connection: sqlite3.Connection) -> None:
            select_file(connection, owner, file_id)
            query = "SELECT id FROM batches WHERE input = ? AND NOT ended"
            user = connection.execute(query, (file_id,)).fetchone()
            if user is not None:
                raise ApiError(
                    409, f"The batch {user[0]} needs the file; cancel the batch first.", "file_id"
                )
            self._remove(connection, file_id)

        await self.folder.run(delete)

    async def delete_expired(self) -> None:
        """Deletes files whose time is over, and what uploads and batches have left that ended
        before they were complete."""

        def delete(connection: sqlite3.Connection) -> None:
            now, clock = unix_time(), time.monotonic()
            expired = connection.execute(
                "SELECT id FROM files WHERE writer IS NULL AND expires <= ? AND id NOT IN"
                " (SELECT input FROM batches WHERE NOT ended)"
                " UNION SELECT id FROM files WHERE writer = ? AND (touched < ? OR touched > ?)"
                " UNION SELECT id FROM files WHERE writer != ? AND writer NOT IN"
                " (SELECT id FROM batches WHERE NOT ended)",
                (now, UPLOAD, clock - _UPLOAD_LOST_AFTER_S, clock, UPLOAD),
            ).fetchall()
            for (file_id,) in expired:
                self._remove(connection, file_id)

        await self.folder.run(delete)

    def _remove(self, connection: sqlite3.Connection, file_id: str) -> None:
        # The content first: on a full disk that makes the room in which the list can change.
        self.folder.content(file_id).unlink(missing_ok=True)
        connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

    async def complete(
        self, file_id: str, size: int, expires_after_s: int | None, purpose: Purpose | None
    ) -> FileObject:
        """The end of a writer: the file exists for its key. `purpose` None: that which it was
        created for."""
        longest = int(self.folder.config.batch_retention)
        lifetime = min(longest, expires_after_s or longest)

        def update(connection: sqlite3.Connection) -> FileObject:
            query = (
                "UPDATE files SET writer = NULL, expires = created + ?,"
                " purpose = coalesce(?, purpose) WHERE id = ? AND bytes = ?"
                f" RETURNING {_COLUMNS}"
            )
            row = connection.execute(query, (lifetime, purpose, file_id, size)).fetchone()
            if row is None:
                raise _absent(file_id)
            return _file(row)

        return await self.folder.run(update)

    async def discard(self, file_id: str) -> None:
        """Deletes a file that was not complete."""
        await self.folder.run(lambda connection: self._remove(connection, file_id))


class FileWriter:
    """Appends to a file; what did not fit is not in it."""

    def __init__(self, files: BatchFiles, file_id: str, size: int) -> None:
        self._files = files
        self._descriptor = -1
        self.file_id = file_id
        self.size = size

    def open(self, flags: int = 0) -> None:
        """Opens the content, with further flags of `os.open`.

        Raises:
            OSError: it cannot be opened.
        """
        path = self._files.folder.content(self.file_id)
        self._descriptor = os.open(path, flags | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    async def write(self, data: bytes) -> None:
        """Appends `data`. If this is cancelled, `size` says whether it did.

        Raises:
            ApiError: 507 if there is no room, 503; nothing was appended.
        """
        folder = self._files.folder
        limit = folder.config.batch_dir_bytes

        def append(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                (used,) = connection.execute("SELECT total(bytes) FROM files").fetchone()
                if used + len(data) > limit:
                    raise ApiError(
                        507,
                        f"The files in {folder.path} (--batch-dir) would be larger than {limit}"
                        " bytes (--batch-dir-bytes): delete some.",
                    )
                updated = connection.execute(
                    "UPDATE files SET bytes = ?, touched = ? WHERE id = ? AND bytes = ?",
                    (self.size + len(data), time.monotonic(), self.file_id, self.size),
                )
                if updated.rowcount == 0:
                    raise _absent(self.file_id)
                _write_all(self._descriptor, data, self.size)
            self.size += len(data)

        await folder.run(append)

    async def complete(
        self, expires_after_s: int | None, purpose: Purpose | None = None
    ) -> FileObject:
        """The file exists for its key, from now on. `purpose` None: that which it was created for.

        Raises:
            ApiError: 507, 503.
        """

        def flush(connection: sqlite3.Connection) -> None:
            del connection
            os.ftruncate(self._descriptor, self.size)
            os.fsync(self._descriptor)

        await self._files.folder.run(flush)
        found = await self._files.complete(self.file_id, self.size, expires_after_s, purpose)
        self.close()
        return found

    async def discard(self) -> None:
        """There will be no such file; nothing happens if it is complete or closed."""
        if self._descriptor >= 0:
            self.close()
            await self._files.discard(self.file_id)

    def close(self) -> None:
        """Writes no more; the file stays as it is."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def select_file(
    connection: sqlite3.Connection, owner: str, file_id: str, param: str = "file_id"
) -> FileObject:
    """The complete file of `owner` that `param` names.

    Raises:
        ApiError: 404 if there is none.
    """
    query = f"SELECT {_COLUMNS} FROM files WHERE id = ? AND owner = ? AND writer IS NULL"
    row = connection.execute(query, (file_id, owner)).fetchone()
    if row is None:
        raise _absent(file_id, param)
    return _file(row)


def _write_all(descriptor: int, data: bytes, start: int) -> None:
    """Writes `data` behind the first `start` bytes, or nothing."""
    try:
        view, end = memoryview(data), start
        while view:
            written = os.pwrite(descriptor, view, end)
            view, end = view[written:], end + written
    except OSError:
        os.ftruncate(descriptor, start)
        raise


def _count(connection: sqlite3.Connection, owner: str | None = None) -> int:
    if owner is None:
        return connection.execute("SELECT count(*) FROM files").fetchone()[0]
    query = "SELECT count(*) FROM files WHERE owner = ?"
    return connection.execute(query, (owner,)).fetchone()[0]


def _file(row: tuple[str, int, int, int, str, Purpose]) -> FileObject:
    file_id, size, created, expires, filename, purpose = row
    return FileObject(
        id=file_id,
        bytes=size,
        created_at=created,
        expires_at=expires,
        filename=filename,
        purpose=purpose,
    )


def _absent(file_id: str, param: str = "file_id") -> ApiError:
    return ApiError(
        404,
        f"`{param}`: there is no file {file_id[:100]!r}. It is another key's, or is deleted, or"
        " has expired.",
        param,
    )
