"""Markers of JPEG files: where a file ends, and in how many scans it has to be decoded."""

from __future__ import annotations

import re
from typing import NamedTuple

from pagemill.render.errors import RenderError

START = b"\xff\xd8\xff"
# A scan takes a decoder time for each pixel of the image, whatever its own length. Encoders write
# about 10.
MAX_SCANS = 200
# Pillow reads markers, and bytes between them, one by one in Python. All files count together.
MAX_MARKERS = 2**18
# Pillow copies what it has of them for each one that follows. Those of a whole file of 20 MiB.
MAX_METADATA = 320
_END, _SCAN, _METADATA = 0xD9, 0xDA, 0xE1
# Behind these Pillow and libjpeg read no length.
_ALONE = frozenset((0x01, 0xC8, *range(0xD0, 0xD9), *range(0xF0, 0xFE)))
# Decoders skip what is no marker, and fill bytes.
_MARKER = re.compile(rb"\xff[^\x00\xff]")
# In a scan 0xff is followed by 0x00 or a restart marker; anything else ends it.
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


class JpegEnd(NamedTuple):
    """`end`: of the file, in the data; None if it is not whole. `scans`: how many it has."""

    end: int | None
    scans: int


class JpegMarkers:
    """Reads files in `data`, which begin with START, as Pillow and libjpeg do."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._num_left = MAX_MARKERS

    def read(self, begin: int = 0) -> JpegEnd:
        """The file that begins at `begin`.

        Raises:
          RenderError: it has more than MAX_SCANS or MAX_METADATA, or all files that were read have
            more than MAX_MARKERS.
        """
        data, at, scans, metadata = self._data, begin + 2, 0, 0
        while (found := self._next(at)) is not None:
            marker, at = data[found.end() - 1], found.end()
            if marker == _END:
                return JpegEnd(at, scans)
            if marker in _ALONE:
                continue
            metadata += marker == _METADATA
            if metadata > MAX_METADATA:
                raise RenderError(
                    f"it has more than {MAX_METADATA} segments of EXIF or XMP; save it without them"
                )
            at += max(int.from_bytes(data[at : at + 2]), 2)
            if marker == _SCAN:
                scans += 1
                if scans > MAX_SCANS:
                    raise RenderError(
                        f"it has more than {MAX_SCANS} scans; save it as a baseline JPEG file"
                    )
                end = _AFTER_SCAN.search(data, at)
                at = len(data) if end is None else end.start()
        return JpegEnd(None, scans)

    def _next(self, at: int) -> re.Match[bytes] | None:
        """The next marker, within what may be read."""
        most = self._num_left + 2
        found = _MARKER.search(self._data, at, at + most)
        end = len(self._data) if found is None else found.end()
        self._num_left -= end - at - 1
        if self._num_left < 0:
            raise RenderError(
                f"it has more than {MAX_MARKERS} markers, or bytes between them; save it again, as"
                " a baseline JPEG file"
            )
        return found
