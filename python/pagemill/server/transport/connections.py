"""How many connections a server has open, and which one is closed for a new one."""

from __future__ import annotations

import ipaddress
import logging
import os
import resource
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, cast

from pagemill.observe.logging import RateLimitedLog
from pagemill.server.errors import ApiError

# Descriptors that connections leave to the rest of the process: model files, the event loop.
RESERVED_DESCRIPTORS = 64
# How often it is looked whether a limit that was lowered may rise.
_LOOK_S = 10.0
# Prefix of IPv6 addresses that count as one: a client chooses the rest.
_IPV6_PREFIX = 64
# What a client must take of a response within --send-timeout.
LEAST_SENT_BYTES = 16 * 1024

_LOGGER = logging.getLogger("pagemill.server")


class Closable(Protocol):
    """A connection, as far as this module is concerned."""

    def close_idle(self) -> None:
        """Closes the connection, of which no request is being answered."""


class Room(Enum):
    """Whether a connection can be served."""

    TAKEN = "taken"
    """It is served."""
    FULL = "full"
    """The server has too many."""
    ADDRESS_FULL = "address full"
    """Its address has too many."""

    def refusal(self) -> ApiError:
        """Of a connection that has none."""
        if self is Room.ADDRESS_FULL:
            return ApiError(
                429,
                "Your address has too many connections (--max-connections-per-address of the"
                " server): close some, or use them for several requests.",
            )
        return ApiError(503, "The server has no room for another connection.")


class Connections:
    """The open connections of one server. Event loop only; every method is O(1), except that
    descriptors are counted every 10 s at most while there are too few.

    A connection is idle from its start, and from the end of a response, until the headers of its
    next request are complete. Idle connections are closed for new ones, the oldest first: a client
    that opens many and sends nothing, or sends slowly, displaces its own. Those of one address are
    bounded likewise.
    """

    def __init__(
        self,
        max_connections: int,
        max_descriptors: int,
        max_of_address: int | None = None,
        *,
        used_descriptors: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_descriptors` is the process's limit, which other parts of it count against, too, and
        `used_descriptors` how many it has. `max_of_address` None: 7/8 of all connections, so that
        no single address has all of them."""
        if max_of_address is None:
            max_of_address = max_connections - max_connections // 8
        self._wanted = self._max_connections = max_connections
        self._max_of_address = max_of_address
        self._last_descriptor = max(max_descriptors - RESERVED_DESCRIPTORS, 1)
        self._max_descriptors = max_descriptors
        self._used_descriptors = used_descriptors or _used_descriptors
        self._clock = clock
        self._look_at = 0.0
        self._open: dict[Closable, str] = {}  # with their addresses
        self._num_of: Counter[str] = Counter()  # by address
        self._idle: dict[Closable, None] = {}  # in the order in which they became idle
        self._idle_of: dict[str, dict[Closable, None]] = {}  # the same by address; none is empty
        # One each: a flood of one kind must not hide the others.
        self._no_descriptors = RateLimitedLog(_LOGGER)
        self._full = RateLimitedLog(_LOGGER)
        self._address_full = RateLimitedLog(_LOGGER)
        self.refusals = RateLimitedLog(_LOGGER)
        self._slow_readers = RateLimitedLog(_LOGGER)
        self.on_slow_reader: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Closable, descriptor: int, address: str = "") -> Room:
        """Adds a new, idle connection from `address` (`address_of`; "": of this machine's own
        sockets, which have none); unless it is TAKEN it must be closed.

        Descriptors are numbered from 0, and a new one gets the lowest free number: a high number
        says that nearly all are in use. Then this many connections are the most, until descriptors
        are counted, and fewer are in use.
        """
        if self._max_connections < self._wanted and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_S
            unused = self._last_descriptor - self._used_descriptors()
            most = min(self._wanted, len(self._open) + unused)
            self._max_connections = max(self._max_connections, most)
        if descriptor > self._last_descriptor:
            self._look_at = self._clock() + _LOOK_S
            self._max_connections = max(1, min(self._max_connections, len(self._open)))
            self._no_descriptors.warning(
                f"File descriptors run out: {descriptor} of {self._max_descriptors} are in use. At"
                f" most {self._max_connections} connections are kept until fewer are; raise the"
                " limit (ulimit -n)."
            )
        if address and self._num_of[address] >= self._max_of_address:
            self._address_full.warning(
                f"{address} has {self._num_of[address]} connections, of at most"
                f" {self._max_of_address} (--max-connections-per-address); its idle ones are"
                " closed."
            )
            oldest = next(iter(self._idle_of.get(address, ())), None)
            if oldest is None:
                return Room.ADDRESS_FULL
            self.closed(oldest)
            oldest.close_idle()
        if len(self._open) >= self._max_connections:
            self._full.warning(
                f"There are {len(self._open)} connections, of at most {self._max_connections}"
                " (--max-connections, ulimit -n); idle ones are closed."
            )
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return Room.FULL
            self.closed(oldest)
            oldest.close_idle()
        self._open[connection] = address
        self._num_of[address] += 1
        self.became_idle(connection)
        return Room.TAKEN

    def became_idle(self, connection: Closable) -> None:
        """A response is complete."""
        if connection in self._open:
            self._idle[connection] = None
            self._idle_of.setdefault(self._open[connection], {})[connection] = None

    def became_busy(self, connection: Closable) -> None:
        """The headers of a request are complete."""
        if connection in self._idle:
            del self._idle[connection]
            address = self._open[connection]
            del self._idle_of[address][connection]
            if not self._idle_of[address]:
                del self._idle_of[address]

    def slow_reader(self, unsent_bytes: int, timeout_s: float) -> None:
        """A connection is closed because its client took too little of a response."""
        self._slow_readers.warning(
            f"Closed a connection whose client took less than {LEAST_SENT_BYTES} bytes of a"
            f" response in {timeout_s:g} s (--send-timeout); {unsent_bytes} were left."
        )
        self.on_slow_reader()

    def closed(self, connection: Closable) -> None:
        """The connection is gone."""
        self.became_busy(connection)
        address = self._open.pop(connection, None)
        if address is not None:
            self._num_of[address] -= 1
            if not self._num_of[address]:
                del self._num_of[address]


def address_of(peer: Any) -> str:
    """What connections of one client have in common, of a socket's peer: the IPv4 address, or the
    network of an IPv6 address; "" of a Unix socket."""
    if not isinstance(peer, tuple):
        return ""
    # Link-local addresses have an interface behind them.
    host = str(cast("tuple[Any, ...]", peer)[0]).partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


def _used_descriptors() -> int:
    """How many this process has."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # there is none for this
        return 2**31 - 1


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
