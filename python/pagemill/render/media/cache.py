"""Prepared media that are kept for later requests, within a bound of bytes.

cache = PreparedCache(max_bytes=2**30)
key = content_key("image", owner.cache_salt, data)
media = cache.get(key)
if media is None:
    media = files.read(data)
    cache.put(key, media)
"""

from __future__ import annotations

import os
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia

_ENTRY_BYTES = 1024  # of an entry beside its array, about, without its key


class MediaKey(NamedTuple):
    """What an item is found by: its kind, and the digest of its file or the name that its owner
    gave it; and whether it is a video with its sound."""

    kind: MediaKind
    owner: tuple[str, ...]
    name: str | bytes
    sound: bool = False


def content_key(kind: MediaKind, cache_salt: str, data: bytes) -> MediaKey:
    """The key of a file: equal files of requests with equal salts are prepared once."""
    return MediaKey(kind, (cache_salt,), sha256(data).digest())


def uuid_key(kind: MediaKind, owner: MediaOwner, uuid: str) -> MediaKey:
    """The key of an item that its owner names: no other owner finds it."""
    return MediaKey(kind, tuple(owner), uuid)


class PreparedCache:
    """Keeps the media that were used last. Thread-safe. Its arrays must not be changed."""

    def __init__(self, max_bytes: int, resets: Path | None = None) -> None:
        """Keeps at most `max_bytes`; with 0 nothing.

        Args:
            max_bytes: of all media and their keys.
            resets: a file that the processes of a server share; one that calls `reset` empties the
                caches of all. The others notice at their next item.
        """
        self._max_bytes = max_bytes
        self._resets = resets
        self._seen_resets = self._num_resets()
        self._num_bytes = 0
        self._media: OrderedDict[MediaKey, PreparedMedia] = OrderedDict()
        self._lock = Lock()

    @property
    def keeps(self) -> bool:
        """False: nothing is kept."""
        return self._max_bytes > 0

    @property
    def num_bytes(self) -> int:
        """Of what is kept."""
        return self._num_bytes

    def get(self, key: MediaKey) -> PreparedMedia | None:
        """The item of `key`; None if there is none."""
        with self._lock:
            self._follow_resets()
            media = self._media.get(key)
            if media is not None:
                self._media.move_to_end(key)
            return media

    def put(self, key: MediaKey, media: PreparedMedia) -> None:
        """Keeps `media`, unless it alone is larger than the cache, and evicts what was used longest
        ago."""
        size = _size(key, media)
        with self._lock:
            self._follow_resets()
            self._drop(key)
            if size > self._max_bytes:
                return
            self._media[key] = media
            self._num_bytes += size
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._media)))

    def reset(self) -> None:
        """Forgets everything, in all processes that share `resets`.

        Raises:
            OSError: `resets` cannot be written; this process alone has forgotten.
        """
        with self._lock:
            try:
                if self._resets is not None:
                    with self._resets.open("ab") as file:
                        file.write(b"\n")
            finally:
                self._clear()

    def _drop(self, key: MediaKey) -> None:
        media = self._media.pop(key, None)
        if media is not None:
            self._num_bytes -= _size(key, media)

    def _clear(self) -> None:
        self._media.clear()
        self._num_bytes = 0
        self._seen_resets = self._num_resets()

    def _follow_resets(self) -> None:
        if self._num_resets() != self._seen_resets:
            self._clear()

    def _num_resets(self) -> int:
        """A byte of the file is a reset."""
        if self._resets is None:
            return 0
        try:
            return os.stat(self._resets).st_size
        except FileNotFoundError:
            return 0


def _size(key: MediaKey, media: PreparedMedia) -> int:
    characters = sum(map(len, key.owner)) + len(key.name)
    return _ENTRY_BYTES + 4 * characters + media.num_bytes
