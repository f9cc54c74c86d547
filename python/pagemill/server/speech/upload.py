"""Files of audio that clients send, in memory: a bounded number of bytes at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from pagemill.server.errors import ApiError
from pagemill.server.protocol.transcription import UploadedAudio
from pagemill.server.shared_places import Place, SharedPlaces

MAX_WAITING = 256
"""Requests that send audio, or whose audio is read."""
MAX_BYTES = 2**28
"""Of what all of them have sent, or more of a single one."""


class AudioUploads:
    """All uploads of a server, which tenants share: if there is no room for one, a tenant that has
    more bytes than its tenant, also with it, loses its newest. Belongs to one event loop."""

    def __init__(self) -> None:
        self._places = SharedPlaces(
            MAX_WAITING, "Too many requests send audio, or wait to; try again."
        )
        self._of: dict[str, list[AudioUpload]] = {}
        """By tenant, the newest last; no list is empty."""

    @contextlib.asynccontextmanager
    async def upload(self, expected_bytes: int, tenant: str) -> AsyncGenerator[AudioUpload]:
        """A file, discarded at the end. Only what has come of its `expected_bytes`, 0 if they are
        not known, takes room.

        Raises:
            ApiError: 429: too many wait, or there is no room for the file, or another tenant got
                it. What runs in the context is cancelled then.
        """
        if not self._fits(0, expected_bytes) and self._to_lose(tenant, expected_bytes) is None:
            raise self._no_room()
        async with self._places.place(tenant) as place:
            upload = AudioUpload(self, tenant, place)
            self._of.setdefault(tenant, []).append(upload)
            try:
                yield upload
            finally:
                upload.discard()

    def grow(self, upload: AudioUpload, size: int) -> None:
        """The file `upload` is to have `size` bytes more.

        Raises:
            ApiError: 429: there is no room.
        """
        while not self._fits(upload.size, size):
            loser = self._to_lose(upload.tenant, size)
            if loser is None:
                raise self._no_room()
            loser.lose()

    def discarded(self, upload: AudioUpload) -> None:
        """The file is gone."""
        uploads = self._of[upload.tenant]
        uploads.remove(upload)
        if not uploads:
            del self._of[upload.tenant]

    def _fits(self, has: int, size: int) -> bool:
        """Whether a file that `has` so many bytes may have `size` more."""
        taken = sum(map(self._bytes_of, self._of))
        return taken + size <= MAX_BYTES or taken == has

    def _to_lose(self, tenant: str, size: int) -> AudioUpload | None:
        """What makes room for `size` bytes of `tenant`."""
        most = max(self._of, key=self._bytes_of, default=tenant)
        if self._bytes_of(tenant) + size >= self._bytes_of(most):
            return None
        return next(upload for upload in reversed(self._of[most]) if upload.size)

    def _bytes_of(self, tenant: str) -> int:
        return sum(upload.size for upload in self._of.get(tenant, ()))

    def _no_room(self) -> ApiError:
        return ApiError(
            429, f"Requests send more than {MAX_BYTES} bytes of audio at once; try again."
        )


class AudioUpload(UploadedAudio):
    """A file, as its bytes come. `size`: of what came; 0 once it is discarded."""

    def __init__(self, uploads: AudioUploads, tenant: str, place: Place) -> None:
        self.tenant = tenant
        self.size = 0
        self._uploads = uploads
        self._place = place
        self._content = bytearray()
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
        self._uploads.grow(self, len(data))
        if not self._is_discarded:  # else the request is being ended
            self.size += len(data)
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
            self.size = 0
            self._uploads.discarded(self)
            self._place.leave()

    def lose(self) -> None:
        """Another tenant gets its room; its request is refused."""
        self.discard()
        self._place.lose()
