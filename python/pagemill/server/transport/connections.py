"""How many connections a server has open, and which one is closed for a new one."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from typing import Protocol

from pagemill.observe.logging import RateLimitedLog

# Descriptors that connections leave to the rest of the process: model files, the event loop.
RESERVED_DESCRIPTORS = 64
# What a client must take of a response within --send-timeout.
LEAST_SENT_BYTES = 16 * 1024

_LOGGER = logging.getLogger("pagemill.server")


class Closable(Protocol):
    """A connection, as far as this module is concerned."""

    def close_idle(self) -> None:
        """Closes the connection, of which no request is being answered."""


class Connections:
    """The open connections of one server. Event loop only; every method is O(1).

    A connection is idle from its start, and from the end of a response, until the headers of its
    next request are complete. Idle connections are closed for new ones, the oldest first: a client
    that opens many and sends nothing, or sends slowly, displaces its own.
    """

    def __init__(self, max_connections: int, max_descriptors: int) -> None:
        """`max_descriptors` is the process's limit, which other parts of it count against, too."""
        self._max_connections = max_connections
        self._last_descriptor = max(max_descriptors - RESERVED_DESCRIPTORS, 1)
        self._max_descriptors = max_descriptors
        self._open: set[Closable] = set()
        self._idle: dict[Closable, None] = {}  # in the order in which they became idle
        # One each: a flood of one kind must not hide the others.
        self._no_descriptors = RateLimitedLog(_LOGGER)
        self._full = RateLimitedLog(_LOGGER)
        self.refusals = RateLimitedLog(_LOGGER)
        self._slow_readers = RateLimitedLog(_LOGGER)
        self.on_slow_reader: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Closable, descriptor: int) -> bool:
        """Adds a new, idle connection; False if it cannot be served and must be closed.

        Descriptors are numbered from 0, and a new one gets the lowest free number: a high number
        says that nearly all are in use. Then this many connections are the most from now on.
        """
        if descriptor > self._last_descriptor:
            self._max_connections = max(1, min(self._max_connections, len(self._open)))
            self._no_descriptors.warning(
                f"File descriptors run out: {descriptor} of {self._max_descriptors} are in use. At"
                f" most {self._max_connections} connections are kept from now on; raise the limit"
                " (ulimit -n)."
            )
        if len(self._open) >= self._max_connections:
            self._full.warning(
                f"There are {len(self._open)} connections, of at most {self._max_connections}"
                " (--max-connections, ulimit -n); idle ones are closed."
            )
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.closed(oldest)
            oldest.close_idle()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def became_idle(self, connection: Closable) -> None:
        """A response is complete."""
        if connection in self._open:
            self._idle[connection] = None

    def became_busy(self, connection: Closable) -> None:
        """The headers of a request are complete."""
        self._idle.pop(connection, None)

    def slow_reader(self, unsent_bytes: int, timeout_s: float) -> None:
        """A connection is closed because its client took too little of a response."""
        self._slow_readers.warning(
            f"Closed a connection whose client took less than {LEAST_SENT_BYTES} bytes of a"
            f" response in {timeout_s:g} s (--send-timeout); {unsent_bytes} were left."
        )
        self.on_slow_reader()

    def closed(self, connection: Closable) -> None:
        """The connection is gone."""
        self._idle.pop(connection, None)
        self._open.discard(connection)


def raise_descriptor_limit(connections: int) -> int:
    """Raises the process's soft limit of descriptors towards what `connections` need.

    Returns the limit that holds then. Shells set 1,024 for programs that use select(),
    which this one is not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**31 - 1
    # The engine's own files and threads' pipes, beside the reserve.
    wanted = connections + 2 * RESERVED_DESCRIPTORS + 512
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft < connections + RESERVED_DESCRIPTORS:
        _LOGGER.warning(
            "This process may have %d file descriptors, fewer than --max-connections %d needs",
            soft,
            connections,
        )
    return soft
