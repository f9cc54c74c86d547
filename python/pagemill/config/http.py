"""Options of HTTP connections and of pages of other origins."""

import re
from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")
_HOST = re.compile(r"\*|(\*\.)?[a-z0-9._-]+|\[?[0-9a-f:.]+\]?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """HTTP connections: limits on their number, and on the size and time of a request."""

    max_connections: int = option(
        4096,
        "Maximum number of open connections. At this limit a new connection closes the one that has"
        " been idle longest; if all have a request, it is refused with HTTP status 503.",
        unit="connections",
        allowed=Range(1, 10**6),
    )
    max_header_bytes: int = option(
        32 * 2**10,
        "Largest request line and headers of one request; more are refused with HTTP status 431.",
        unit="bytes",
        allowed=Range(1024, 2**24),
    )
    header_timeout: float = option(
        10.0,
        "Time limit for the headers of a request, from the first byte, or on a new connection from"
        " its start; then HTTP status 408.",
        unit="s",
        allowed=Range(0.1, 86400),
    )
    body_timeout: float = option(
        30.0,
        "Longest pause between two bytes of a request's body; then HTTP status 408.",
        unit="s",
        allowed=Range(0.1, 86400),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class OriginConfig:
    """Browsers: other origins whose pages may use the server (CORS)."""

    allowed_origins: tuple[str, ...] = option(
        (),
        "Origin, such as https://example.com, whose pages may send requests; may be repeated. *"
        " allows every origin. Default: only pages of the server's own origin.",
    )
    allowed_methods: tuple[str, ...] = option(
        ("*",), "Method that pages of --allowed-origins may use; may be repeated. * allows all."
    )
    allowed_headers: tuple[str, ...] = option(
        ("*",), "Header that pages of --allowed-origins may send; may be repeated. * allows all."
    )
    allow_credentials: bool = option(
        False,
        "Let pages of --allowed-origins send cookies and HTTP authentication, for a proxy that"
        " needs them. Not with the origin *.",
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        "Name or address, without port, that the Host header may have; may be repeated."
        " *.example.com is every name below example.com. Protects a server without a key against"
        " pages whose name is made to resolve to it (DNS rebinding). Default: any.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: an origin or a host is not written as browsers send it.
        """
        check(self)
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"--allowed-origins: {origin!r} is not an origin; write it as"
                    " https://example.com or http://localhost:3000, without a path"
                )
        if "*" in self.allowed_origins and self.allow_credentials:
            raise ConfigError("--allow-credentials needs --allowed-origins by name, not *")
        for host in self.allowed_hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"--allowed-hosts: {host!r} is not a host; write example.com, without port"
                )
