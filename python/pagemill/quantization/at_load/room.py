"""Room in a folder of files that are written once and can be written again."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pagemill.weights.new_file import PARTIAL

_DAY = 24 * 3600
_UNREAD = 30 * _DAY
_SHARE_LEFT = 10  # of the file system a tenth


def make_room(folder: Path, size: int) -> None:
    """Removes files of `folder` that were not read for 30 days, and of the others those that were
    read the longest ago, until `size` bytes and a tenth of the file system are free. Files that are
    being written stay for a day. Processes that have a file open go on.

    Raises:
        OSError: there is no room for `size` bytes, even without these files; nothing is removed.
    """
    now, files = time.time(), sorted(_files(folder))
    others = [entry for entry in files if entry.path.suffix != PARTIAL or entry.age(now) > _DAY]
    if shutil.disk_usage(folder).free + sum(entry.size for entry in others) < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for entry in others:
        disk = shutil.disk_usage(folder)
        has_room = disk.free - size >= disk.total // _SHARE_LEFT
        if not has_room or entry.age(now) > _UNREAD:
            entry.path.unlink(missing_ok=True)


class _File(NamedTuple):
    read_at: float
    path: Path
    size: int

    def age(self, now: float) -> float:
        return now - self.read_at


def _files(folder: Path) -> Iterator[_File]:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process makes room, too
            found = os.stat(path)
            yield _File(found.st_atime, path, found.st_blocks * 512)
