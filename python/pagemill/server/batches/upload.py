"""A file that a client uploads, as its bytes come."""

from __future__ import annotations

import contextlib

from pagemill.server.batches.files import BatchFiles, FileWriter
from pagemill.server.batches.folder import UPLOAD
from pagemill.server.errors import ApiError
from pagemill.server.protocol.file import FileObject, UploadedFile, UploadPurpose

_PORTION_BYTES = 256 * 1024


class Upload(UploadedFile):
    """Discarded at the end of the request, unless it is kept."""

    def __init__(self, files: BatchFiles, owner: str) -> None:
        self._files = files
        self._owner = owner
        self._writer: FileWriter | None = None
        self._buffer = bytearray()

    async def begin(self, filename: str | None) -> None:
        """The client sends a file.

        Raises:
            ApiError: there is no room for another one.
        """
        self._writer = await self._files.create(self._owner, "batch", filename or "upload", UPLOAD)

    async def write(self, data: bytes) -> None:
        """Appends `data`, which reaches the file in portions.

        Raises:
            ApiError: there is no room.
        """
        self._buffer += data
        if len(self._buffer) >= _PORTION_BYTES:
            await self._flush()

    async def keep(self, purpose: UploadPurpose, expires_after_s: int | None) -> FileObject:
        """The file stays."""
        assert self._writer is not None, "decoding the form needs a file"
        await self._flush()
        return await self._writer.complete(expires_after_s, purpose)

    async def discard(self) -> None:
        """Deletes what was not kept."""
        if self._writer is not None:
            with contextlib.suppress(ApiError):  # logged; it is deleted later
                await self._writer.discard()

    async def _flush(self) -> None:
        assert self._writer is not None, "a file begins before its bytes"
        data = bytes(self._buffer)
        self._buffer.clear()
        await self._writer.write(data)
