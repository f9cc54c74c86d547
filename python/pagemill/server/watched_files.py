"""Files that are read again when they change: keys and certificates.

    files = WatchedFiles(paths)
    load()                           # after `files` looked, so that no change is missed
    await follow(files, load_again)  # in the background

They are polled. A signal would have to reach every process, and secrets that Kubernetes mounts are
replaced without one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence

from pagemill.config import ConfigError

_LOGGER = logging.getLogger("pagemill.server")
POLL_S = 1.0


class WatchedFiles:
    """The state of some files when they were looked at last."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._reported = self._last = self._look()

    def changed(self) -> bool:
        """True once for each change, at the first call that finds the files as the call before it
        did: a file that is being written is not read."""
        before, self._last = self._last, self._look()
        if self._last != before or self._last == self._reported:
            return False
        self._reported = self._last
        return True

    def _look(self) -> list[tuple[int, ...]]:
        return [_stamp(path) for path in self.paths]


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_dev, found.st_ino


async def follow(
    files: WatchedFiles, load: Callable[[], Awaitable[None]], poll_s: float = POLL_S
) -> None:
    """Awaits `load()` after each change. If that fails, it logs one line; `load` must then have
    changed nothing. Never returns."""
    while True:
        await asyncio.sleep(poll_s)
        if not files.changed():
            continue
        try:
            await load()
        except (ConfigError, OSError) as error:
            _LOGGER.error("%s; what was read before stays in use", error)
        except Exception as error:
            # Without the message and traceback of a parser, which may show what the file holds.
            kind = type(error).__name__
            shown = ", ".join(files.paths)
            _LOGGER.error("%s: %s; what was read before stays in use", shown, kind)
