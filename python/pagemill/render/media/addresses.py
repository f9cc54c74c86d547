"""Which addresses on the network are public."""

from __future__ import annotations

import ipaddress

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 networks whose addresses hold one of IPv4 in their last 32 bits, to which they may lead.
_TRANSLATED = tuple(
    ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
)


def is_public(address: str) -> bool:
    """Whether anyone on the internet could reach `address`, an IPv4 or IPv6 address: it is not
    private, loopback, link-local, multicast or reserved, and holds no IPv4 address that is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    embedded = _embedded(parsed)
    if embedded:  # reserved networks, whose addresses are as public as those in them
        return parsed.is_global and all(map(_is_public, embedded))
    return _is_public(parsed)


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _TRANSLATED):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]
