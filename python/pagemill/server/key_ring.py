"""The API keys that are valid now, while their file changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pagemill.config import ConfigError
from pagemill.server.keys import ApiKey, KeySet, read_again

_LOGGER = logging.getLogger("pagemill.server")
_LOOK_EVERY_S = 2.0


class KeyRing:
    """Keys of a server. Event loop only.

    The file is looked at every two seconds, not announced by a signal: that works in every process
    of a server and where files are replaced under it, as Kubernetes does. A file with a mistake
    changes nothing, and is in the log once.
    """

    def __init__(
        self,
        keys: KeySet | Sequence[ApiKey] = (),
        path: Path | None = None,
        check: Callable[[Sequence[ApiKey]], None] = lambda keys: None,
    ) -> None:
        """`path`: the file of `keys.filed`. `check` raises ConfigError for keys that cannot be."""
        self._set = keys if isinstance(keys, KeySet) else KeySet(tuple(keys))
        self._path = path
        self._check = check
        self._seen: tuple[int, ...] | None = None
        self.keys = self._set.all

    async def watch(self) -> None:
        """Follows the file until it is cancelled."""
        while True:
            if self._path is not None:
                await self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Reads the file again if it has changed."""
        assert self._path is not None
        seen = await asyncio.to_thread(_version, self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            found = await asyncio.to_thread(read_again, self._set, self._path)
            self._check(found.all)
        except ConfigError as error:
            _LOGGER.error("the keys of before stay valid: %s", error)
            return
        if found != self._set:
            self._set, self.keys = found, found.all
            _LOGGER.warning("--api-key-file: %d keys are valid now", len(self.keys))


def _version(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
