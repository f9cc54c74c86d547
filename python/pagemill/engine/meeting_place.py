"""Where machines that belong together meet: an address of one of them, and a secret of all."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field

from pagemill.config import ConfigError
from pagemill.engine.secret_file import read_secret


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """A TCP address, and the secret that keeps others out, "" at a loopback address."""

    host: str
    """An IP address."""
    port: int
    secret: str = field(repr=False)

    @classmethod
    def of(cls, flag: str, name: str, port: int, secret_file: str) -> MeetingPlace:
        """At `name`, the value of `flag`: an address, or the name of a host, which is resolved.

        Raises:
            ConfigError: the address or the secret cannot be used.
        """
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{flag} {name}: this machine knows no such address") from error
        host = str(found[0][4][0])
        if not ipaddress.ip_address(host).is_loopback and not secret_file:
            raise ConfigError(
                f"{flag} {name} needs --node-secret-file: without a secret, machines connect at a"
                " loopback address only"
            )
        return cls(host, port, read_secret("--node-secret-file", secret_file))

    @property
    def address(self) -> str:
        """As text."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
