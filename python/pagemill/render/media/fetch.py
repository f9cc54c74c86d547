"""Media from other hosts: those that the operator allows, at public addresses only.

    fetcher = MediaFetcher(("images.example.com",), max_bytes=2**20, timeout_s=5.0)
    data = fetcher.fetch("https://images.example.com/cat.png")

A name is resolved once, all of its addresses are checked, and the connection goes to one of those:
what the name resolves to later does not matter. Messages of errors say nothing of what the host
answered but its status.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from pagemill.render.errors import RenderError
from pagemill.render.media.addresses import is_public

_PORTS = {"http": 80, "https": 443}
_CHUNK_BYTES = 2**16
_MAX_URL_CHARS = 8192
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~-._?"

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a host."""
Connect = Callable[[tuple[str, int], float], socket.socket]
"""A connection to an address and a port, made within so many seconds."""


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of `host`. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class _Place(NamedTuple):
    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFetcher:
    """Fetches from the hosts of `domains`: names, `*.` and a name for those below it, or either
    with a port. Thread-safe; `fetch` blocks for `timeout_s` at most, and longer if the system's
    resolver does. `resolve`, `connect` and `tls` are for tests."""

    domains: tuple[str, ...]
    max_bytes: int
    timeout_s: float
    resolve: Resolve = resolve_host
    connect: Connect = socket.create_connection
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def fetch(self, url: str) -> bytes:
        """What the host answers to a GET.

        Raises:
          RenderError: the URL is not allowed, or the file cannot be had within the limits.
        """
        place = self._place(url)
        deadline = time.monotonic() + self.timeout_s
        try:
            return self._get(place, self._addresses(place), deadline)
        except (OSError, http.client.HTTPException):
            if time.monotonic() >= deadline:
                raise RenderError(
                    f"the file at {place.host} did not come within {self.timeout_s:g} s"
                ) from None
            raise RenderError(f"the file cannot be fetched from {place.host}") from None

    def _place(self, url: str) -> _Place:
        if len(url) > _MAX_URL_CHARS:
            raise RenderError(f"the URL of a file has more than {_MAX_URL_CHARS} characters")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise RenderError("the URL of a file is not a URL") from None
        scheme, host = parts.scheme.lower(), (parts.hostname or "").lower().rstrip(".")
        if scheme not in _PORTS or not host:
            raise RenderError("the URL of a file must begin with https://, http:// or data:")
        if parts.username is not None or parts.password is not None:
            raise RenderError("the URL of a file must not hold a user name or a password")
        if not any(_allows(domain, host, port) for domain in self.domains):
            raise RenderError(
                f"media are not fetched from {_shown(host, port)}: send the file as a data: URL,"
                " or start the server with --allowed-media-domains"
            )
        return _Place(scheme, host, port or _PORTS[scheme], _target(parts))

    def _addresses(self, place: _Place) -> Sequence[str]:
        addresses = self.resolve(place.host, place.port)
        if not addresses or not all(map(is_public, addresses)):
            raise RenderError(f"media are not fetched from {place.host}: its address is not public")
        return addresses

    def _connected(self, place: _Place, addresses: Sequence[str], deadline: float) -> socket.socket:
        """A connection to the first of `addresses` that takes one."""
        for at, address in enumerate(addresses):
            left = max(0.001, deadline - time.monotonic())
            try:
                return self.connect((address, place.port), left / (len(addresses) - at))
            except OSError:
                if at == len(addresses) - 1:
                    raise
        raise OSError("no address")

    def _get(self, place: _Place, addresses: Sequence[str], deadline: float) -> bytes:
        connection = http.client.HTTPConnection(place.host, place.port)
        with (
            contextlib.closing(self._connected(place, addresses, deadline)) as plain,
            _ended_at(deadline, plain),
            contextlib.closing(connection),
        ):
            connection.sock = self._secured(plain, place, deadline)
            connection.request("GET", place.target, headers=_headers(place))
            return self._body(connection.getresponse(), place, deadline)

    def _secured(self, plain: socket.socket, place: _Place, deadline: float) -> socket.socket:
        plain.settimeout(max(0.001, deadline - time.monotonic()))
        if place.scheme == "http":
            return plain
        return self.tls.wrap_socket(plain, server_hostname=place.host)

    def _body(self, response: http.client.HTTPResponse, place: _Place, deadline: float) -> bytes:
        if 300 <= response.status < 400:
            raise RenderError(
                f"{place.host} redirects to another URL, which is not followed: send that one"
            )
        if response.status != 200:
            raise RenderError(f"{place.host} answered with HTTP status {response.status}")
        body = bytearray()
        while chunk := response.read(_CHUNK_BYTES):
            body += chunk
            if len(body) > self.max_bytes:
                raise RenderError(f"the file is larger than {self.max_bytes} bytes")
        if time.monotonic() >= deadline:
            raise TimeoutError
        return bytes(body)


def _allows(domain: str, host: str, port: int | None) -> bool:
    name, _, allowed_port = domain.partition(":")
    fits = host.endswith(name[1:]) if name.startswith("*.") else host == name
    return fits and (port == int(allowed_port) if allowed_port else port in (None, 80, 443))


def _target(parts: SplitResult) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return quote((parts.path or "/") + query, safe=_PATH_CHARACTERS)


def _headers(place: _Place) -> dict[str, str]:
    port = "" if place.port == _PORTS[place.scheme] else f":{place.port}"
    return {
        "Host": place.host + port,
        "User-Agent": "pagemill",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


def _shown(host: str, port: int | None) -> str:
    return ascii(host[:100])[1:-1] + ("" if port is None else f":{port}")


@contextlib.contextmanager
def _ended_at(deadline: float, connection: socket.socket) -> Generator[None]:
    """Shuts `connection` down at `deadline`, also for a host that sends a byte now and then."""
    watched = connection.dup()  # TLS takes the other one over

    def end() -> None:
        with contextlib.suppress(OSError):
            watched.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        watched.close()
