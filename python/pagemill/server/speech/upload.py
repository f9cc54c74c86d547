"""Files of audio that clients send, in memory: a bounded number of bytes at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

from pagemill.server.capacity import Capacity
from pagemill.server.errors import ApiError
from pagemill.server.protocol.transcription import UploadedAudio

MAX_WAITING = 256
"""Requests that send audio, or whose audio is read."""
_MAX_BYTES = 2**28  # of all of them, by the most that each may send


class AudioUpload(UploadedAudio):
    """A file, as its bytes come."""

    def __init__(self, discarded: Callable[[], None]) -> None:
        self._content = bytearray()
        self._discarded = discarded
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
        """Appends `data`."""
        self._content += data

    def content(self) -> bytes:
        """See `UploadedAudio`."""
        return bytes(self._content)

    def discard(self) -> None:
        """See `UploadedAudio`."""
        if not self._is_discarded:
            self._is_discarded = True
            self._content = bytearray()
            self._discarded()


class AudioUploads:
    """All uploads of a server. Belongs to one event loop."""

    def __init__(self) -> None:
        self._num_waiting = 0
        self._room = Capacity(_MAX_BYTES)

    @contextlib.asynccontextmanager
    async def upload(self, max_bytes: int) -> AsyncGenerator[AudioUpload]:
        """A file of at most `max_bytes`, which the caller sees to; discarded at the end.

        Raises:
            ApiError: 429: too many wait.
        """
        if self._num_waiting >= MAX_WAITING:
            raise ApiError(429, "Too many requests send audio, or wait to; try again.")
        self._num_waiting += 1
        try:
            await self._room.take(max_bytes)
        except BaseException:
            self._num_waiting -= 1
            raise
        upload = AudioUpload(lambda: self._discarded(max_bytes))
        try:
            yield upload
        finally:
            upload.discard()

    def _discarded(self, max_bytes: int) -> None:
        self._num_waiting -= 1
        self._room.give(max_bytes)
