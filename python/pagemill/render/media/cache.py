"""Prepared images that are kept for later requests, within a bound of bytes.

cache = PreparedCache(max_bytes=2**30)
key = content_key(owner.cache_salt, data)
image = cache.get(key)
if image is None:
    image = processor(decoded(data, limits))
    cache.put(key, image)
"""

from __future__ import annotations

import os
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from pagemill.inputs.media_owner import MediaOwner

if TYPE_CHECKING:  # Pillow is an extra
    from pagemill.render.media.processors import Prepared

_ENTRY_BYTES = 1024  # of an entry beside its array, about, without its key


class MediaKey(NamedTuple):
    """What an image is found by: the digest of its file, or the name that its owner gave it."""

    owner: tuple[str, ...]
    name: str | bytes


def content_key(cache_salt: str, data: bytes) -> MediaKey:
    """The key of a file: equal files of requests with equal salts are prepared once."""
    return MediaKey((cache_salt,), sha256(data).digest())


def uuid_key(owner: MediaOwner, uuid: str) -> MediaKey:
    """The key of an image that its owner names: no other owner finds it."""
    return MediaKey(tuple(owner), uuid)


class PreparedCache:
    """Keeps the images that were used last. Thread-safe. Its arrays must not be changed."""

    def __init__(self, max_bytes: int, resets: Path | None = None) -> None:
        """Keeps at most `max_bytes`; with 0 nothing.

        Args:
            max_bytes: of all images and their keys.
            resets: a file that the processes of a server share; one that calls `reset` empties the
                caches of all. The others notice at their next image.
        """
        self._max_bytes = max_bytes
        self._resets = resets
        self._seen_resets = self._num_resets()
        self._num_bytes = 0
        self._images: OrderedDict[MediaKey, Prepared] = OrderedDict()
        self._lock = Lock()

    @property
    def keeps(self) -> bool:
        """False: nothing is kept."""
        return self._max_bytes > 0

    @property
    def num_bytes(self) -> int:
        """Of what is kept."""
        return self._num_bytes

    def get(self, key: MediaKey) -> Prepared | None:
        """The image of `key`; None if there is none."""
        with self._lock:
            self._follow_resets()
            image = self._images.get(key)
            if image is not None:
                self._images.move_to_end(key)
            return image

    def put(self, key: MediaKey, image: Prepared) -> None:
        """Keeps `image`, unless it alone is larger than the cache, and evicts what was used longest
        ago."""
        size = _size(key, image)
        with self._lock:
            self._follow_resets()
            self._drop(key)
            if size > self._max_bytes:
                return
            self._images[key] = image
            self._num_bytes += size
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._images)))

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
        image = self._images.pop(key, None)
        if image is not None:
            self._num_bytes -= _size(key, image)

    def _clear(self) -> None:
        self._images.clear()
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


def prepared_bytes(image: Prepared) -> int:
    """Bytes of the array of `image`."""
    return (image[0] if isinstance(image, tuple) else image).nbytes


def _size(key: MediaKey, image: Prepared) -> int:
    characters = sum(map(len, key.owner)) + len(key.name)
    return _ENTRY_BYTES + 4 * characters + prepared_bytes(image)
