"""A file in memory that ends early once it is not wanted any more: what decodes it in pieces ends
with it.

with Image.open(StoppableFile(data, stop)) as image:
    image.load()       # as if the file were truncated, once `stop` is set
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pagemill.render.errors import RenderError
from pagemill.render.stop import Stop

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_READS = 2**19
"""Parsers read files in pieces of 64 KiB, and small parts of them one by one, in Python."""


class StoppableFile(io.BytesIO):
    """Reads end at `MAX_READS`, and with `stop`. Others of its methods are those of `BytesIO`."""

    def __init__(self, data: bytes, stop: Stop) -> None:
        super().__init__(data)
        self._stop = stop
        self._reads_left = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; none once `stop` is set.

        Raises:
            RenderError: there were too many reads.
        """
        if self._stop.is_set():
            return b""
        self._reads_left -= 1
        if self._reads_left < 0:
            raise RenderError("it has too many small parts; save it again with another program")
        return super().read(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into `buffer`, and returns how many bytes; 0 once `stop` is set. Called by C code,
        to which exceptions mean nothing."""
        return 0 if self._stop.is_set() else super().readinto(buffer)


def check_wanted(stop: Stop) -> None:
    """Raises RenderError, which says nothing about the file, once `stop` is set."""
    if stop.is_set():
        raise RenderError("it is not wanted any more")
