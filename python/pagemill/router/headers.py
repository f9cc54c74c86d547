"""Which headers pass through the router.

Headers of one connection do not (RFC 9110, section 7.6.1). The client's address is appended to
`X-Forwarded-For`. `Origin` stays here: the router has checked it against its own address, which
servers do not know.
"""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

_OF_A_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_REPLACED = frozenset(
    {b"content-length", b"expect", b"host", b"origin", b"x-forwarded-for", b"x-request-id"}
)
_SET_BY_ROUTER = frozenset({b"date", b"server", b"x-request-id"})


def to_server(
    headers: Iterable[tuple[bytes, bytes]], *, host: bytes, client: str, request_id: str, size: int
) -> Headers:
    """The headers of a request to the server `host`, whose body has `size` bytes.

    Names are in lower case, as ASGI has them. `client` is the address that the request came from.
    """
    sent = list(headers)
    hops = [value for name, value in sent if name == b"x-forwarded-for"]
    passed = _without(sent, _REPLACED)
    passed += [
        (b"host", host),
        (b"content-length", str(size).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    if client:
        passed.append((b"x-forwarded-for", b", ".join([*hops, client.encode()])))
    return passed


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of a server's response that the client gets; names in lower case."""
    return _without([(name.lower(), value) for name, value in headers], _SET_BY_ROUTER)


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """The first value of the header `name`, in lower case; b"" if it is missing."""
    return next((value for each, value in headers if each.lower() == name), b"")


def _without(headers: Headers, names: frozenset[bytes]) -> Headers:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    dropped = _OF_A_CONNECTION | names | named
    return [(name, value) for name, value in headers if name not in dropped]
