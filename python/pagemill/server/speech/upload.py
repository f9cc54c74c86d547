"""Files of audio that clients send, in memory: a bounded number of bytes at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from pagemill.server.errors import ApiError
from pagemill.server.protocol.transcription import UploadedAudio

MAX_WAITING = 256
"""Requests that send audio, or whose audio is read."""
MAX_BYTES = 2**28
"""Of what all of them have sent, or more of a single one."""


class AudioUploads:
    """All uploads of a server. Belongs to one event loop."""

    def __init__(self) -> None:
        self._num_waiting = 0
        self._num_bytes = 0

    @contextlib.asynccontextmanager
    async def upload(self, expected_bytes: int) -> AsyncGenerator[AudioUpload]:
        """A file, discarded at the end. Only what has come of its `expected_bytes`, 0 if they are
        not known, takes room.

        Raises:
            ApiError: 429: too many wait, or there is no room for the file.
        """
        if self._num_waiting >= MAX_WAITING:
            raise ApiError(429, "Too many requests send audio, or wait to; try again.")
        self._check_room(0, expected_bytes)
        self._num_waiting += 1
        upload = AudioUpload(self)
        try:
            yield upload
        finally:
            upload.discard()

    def grow(self, has: int, size: int) -> None:
        """A file that `has` so many bytes has `size` more.

        Raises:
            ApiError: 429: there is no room.
        """
        self._check_room(has, size)
        self._num_bytes += size

    def discarded(self, size: int) -> None:
        """A file of `size` bytes is gone."""
        self._num_waiting -= 1
        self._num_bytes -= size

    def _check_room(self, has: int, size: int) -> None:
        is_alone = self._num_bytes == has
        if self._num_bytes + size > MAX_BYTES and not is_alone:
            raise ApiError(
                429, f"Requests send more than {MAX_BYTES} bytes of audio at once; try again."
            )


class AudioUpload(UploadedAudio):
    """A file, as its bytes come."""

    def __init__(self, uploads: AudioUploads) -> None:
        self._uploads = uploads
        self._content = bytearray()
        self._size = 0
        self._is_discarded = False

    async def begin(self, filename: str | None) -> None:
        """The client sends a file.

        Raises:
            ApiError: 422: it sends text.
        """
        if filename is None:
            raise ApiError(
                422, "`file` is text; it must be a file of audio: with curl, -F file=@NAME.", "file"
            )

    async def write(self, data: bytes) -> None:
        """Appends `data`.

        Raises:
            ApiError: 429: there is no room.
        """
        self._uploads.grow(self._size, len(data))
        self._size += len(data)
        self._content += data

    def take(self) -> bytes:
        """See `UploadedAudio`."""
        content = bytes(self._content)
        self._content = bytearray()
        return content

    def discard(self) -> None:
        """See `UploadedAudio`."""
        if not self._is_discarded:
            self._is_discarded = True
            self._content = bytearray()
            self._uploads.discarded(self._size)
