"""What an endpoint's handler returns; the transport encodes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from pagemill.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not JSON."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Bytes, and JSON in ASCII that describes them: the header `metadata` of HTTP, which alone
    carries such an answer."""

    content: bytes
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file, sent as it is read."""

    path: Path
    media_type: str


@dataclass(frozen=True, slots=True)
class Portions:
    """A long text, of which portions are made, in threads, as they are sent. HTTP alone carries
    such an answer."""

    portions: Iterator[bytes]
    media_type: str


class Events(Protocol):
    """A stream of server-sent events, encoded as they arise; `respond.ResponseEvents` is one.

    The transport calls `close` when the response is over, however it ends.
    """

    ended: bool
    """Set by the `take` that returns the last events."""
    failure: ApiError | None
    """Why the stream ended early, once it has ended; the last events say it as well."""

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when `take` may have something."""
        ...

    def take(self, behind: bool) -> bytes:
        """Complete events since the last call: fewer and larger ones for a reader `behind`."""
        ...

    def close(self) -> None:
        """Aborts what has not finished."""
        ...


class Socket(Protocol):
    """Messages to and from a client; `realtime.websocket.WebSocket` is one."""

    @property
    def is_full(self) -> bool:
        """Whether the client has taken too little of what was sent to be sent more."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the client has closed the connection, or is gone."""
        ...

    @property
    def is_allowed(self) -> bool:
        """Whether the key that the client connected with is still valid."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None once the connection is closed."""
        ...

    def send(self, message: bytes) -> None:
        """Sends a message, unless the connection is closed."""
        ...

    async def writable(self) -> None:
        """Waits until the connection is not full."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Closes the connection."""
        ...


class Talk(ABC):
    """A conversation over a WebSocket; `realtime.session.Session` is one."""

    @abstractmethod
    async def run(self, socket: Socket) -> None:
        """Talks until the end, and closes `socket`."""


Answer = msgspec.Struct | Text | Binary | FileContent | Portions | Events | Talk
"""A `Talk` is what routes with the transport WEBSOCKET answer, and no others do."""
