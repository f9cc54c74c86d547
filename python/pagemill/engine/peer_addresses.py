"""Addresses of engines on other machines, whose hosts an operator may name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from pagemill.config import ConfigError


def resolved(flag: str, address: str) -> list[str]:
    """The addresses of `address`, "HOST:PORT" and the value of `flag`, with the IP addresses of a
    host that has a name. Others stay as they are, and so does what is no address: what takes it
    says so.

    Raises:
        ConfigError: this machine does not know the name.
    """
    host, _, port = address.rpartition(":")
    if not host or ":" in host or not port.isdecimal() or _is_ip(host):
        return [address]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{flag} {address}: this machine knows no host of this name; names are resolved when"
            " the engine starts"
        ) from error
    hosts = dict.fromkeys(str(each[4][0]) for each in found)
    return [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in hosts]


def all_resolved(flag: str, addresses: Iterable[str]) -> list[str]:
    """`resolved` of all `addresses`.

    Raises:
        ConfigError: this machine does not know a name.
    """
    return list(dict.fromkeys(ip for each in addresses for ip in resolved(flag, each)))


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
