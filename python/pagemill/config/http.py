"""Options of HTTP connections, of TLS, and of pages of other origins."""

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
    max_connections_per_address: int | None = option(
        None,
        "Maximum number of open connections of one IPv4 address, or of one IPv6 network of 64 bits,"
        " by the connection itself: headers of proxies are not read. At this limit a new one closes"
        " the address's connection that has been idle longest; if all have a request, it is refused"
        " with HTTP status 429. Behind a proxy, set it to --max-connections. Default: 7/8 of"
        " --max-connections.",
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
        "Longest pause between two bytes of a request's body; then HTTP status 408. A form with a"
        " file may also take no longer than this, and a second for each 16 KiB.",
        unit="s",
        allowed=Range(0.1, 86400),
    )
    send_timeout: float = option(
        60.0,
        "A client that takes less than 16 KiB of a response in this time, while more waits to be"
        " sent, is disconnected, and its request is aborted.",
        unit="s",
        allowed=Range(0.1, 86400),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS: the certificate, and what clients need."""

    ssl_certfile: str | None = option(
        None,
        "Certificate of the server, with the chain up to a root, in PEM. Connections are encrypted"
        " if it is set. It is read again when it changes, as are the next two files.",
    )
    ssl_keyfile: str | None = option(
        None, "Private key of --ssl-certfile, in PEM, without password. Default: in the same file."
    )
    ssl_ca_certs: str | None = option(
        None, "Certificates of authorities, in PEM, that sign clients' certificates."
    )
    ssl_cert_reqs: int = option(
        0,
        "Certificates of clients: 0 = not requested, 1 = verified if the client has one, 2 ="
        " required. 1 and 2 need --ssl-ca-certs.",
        allowed=Range(0, 2),
    )
    ssl_ciphers: str | None = option(
        None, "Ciphers of TLS 1.2, in OpenSSL's notation. Default: OpenSSL's; of TLS 1.3 always."
    )
    ssl_minimum_version: str = option(
        "TLSv1_2", "Oldest version of TLS that is spoken.", allowed=("TLSv1_2", "TLSv1_3")
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: an option lacks another one.
        """
        check(self)
        if self.ssl_certfile is None:
            for flag, value in (
                ("--ssl-keyfile", self.ssl_keyfile),
                ("--ssl-ca-certs", self.ssl_ca_certs),
            ):
                if value is not None:
                    raise ConfigError(f"{flag} needs --ssl-certfile")
        if self.ssl_cert_reqs and self.ssl_ca_certs is None:
            raise ConfigError("--ssl-cert-reqs needs --ssl-ca-certs")


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
