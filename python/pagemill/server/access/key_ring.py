"""The keys that are valid now, and the file that they are read from again when it changes."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from pagemill.config import ServerConfig
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.access.keys import ApiKey, api_keys
from pagemill.server.watched_files import POLL_S, WatchedFiles, follow

_LOGGER = logging.getLogger("pagemill.server")
_KEY_PROTOCOL = b"openai-insecure-api-key."


class KeyRing:
    """The valid keys. A request keeps what its key was when it was checked."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self.keys = tuple(keys)

    def replace(self, keys: Sequence[ApiKey]) -> None:
        """The keys are these from the next request on."""
        self.keys = tuple(keys)

    def owner(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller | None:
        """The owner of the key that a request's headers hold, as `Authorization: Bearer KEY`,
        `X-API-Key: KEY`, or `Sec-WebSocket-Protocol: openai-insecure-api-key.KEY`, which is what
        pages can send with a WebSocket; names of headers are in lower case.

        Every comparison is one of digests and takes the same time, whether and where the key
        differs, and all keys are always compared.
        """
        found: Caller | None = None
        for sent in _sent_keys(headers):
            digest = sha256(sent).digest()
            for key in self.keys:
                if hmac.compare_digest(digest, key.digest):
                    found = key.caller
        return found

    def caller_named(self, key_id: str) -> Caller | None:
        """The owner of the key with that name; None if there is none."""
        if not self.keys:
            return ANONYMOUS if key_id == ANONYMOUS.key_id else None
        return next((key.caller for key in self.keys if key.caller.key_id == key_id), None)


def _sent_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
        elif name == b"x-api-key":
            yield value.strip()
        elif name == b"sec-websocket-protocol":
            _, prefix, key = value.partition(_KEY_PROTOCOL)
            if prefix:
                yield key.partition(b",")[0].strip()


class KeyFile:
    """Reads the keys of `config`; `allows_priority` is `api_keys`'.

    Raises:
        ConfigError: they cannot be used.
    """

    def __init__(self, config: ServerConfig, *, allows_priority: bool = True) -> None:
        self._read = partial(api_keys, config, allows_priority=allows_priority)
        path = config.api_key_file
        paths = () if path is None else (str(Path(path).expanduser()),)
        self._files = WatchedFiles(paths)
        self.keys = self._read()

    async def follow(
        self, replace: Callable[[Sequence[ApiKey]], None], poll_s: float = POLL_S
    ) -> None:
        """Calls `replace` with all keys when their file has changed and holds no mistake. Never
        returns."""

        async def load() -> None:
            keys = await asyncio.to_thread(self._read)
            replace(keys)
            _LOGGER.info("--api-key-file was read again: %d key(s)", len(keys))

        await follow(self._files, load, poll_s)
