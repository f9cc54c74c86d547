"""Headers that pass, and those that do not."""

from __future__ import annotations

from pagemill.router.headers import to_client, to_server


def test_to_server() -> None:
    sent = [
        (b"host", b"router"),
        (b"authorization", b"Bearer k"),
        (b"x-api-key", b"k"),
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"expect", b"100-continue"),
        (b"proxy-authorization", b"secret"),
        (b"origin", b"http://router"),
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-forwarded-for", b"2.2.2.2"),
        (b"x-tenant-id", b"blue"),
        (b"traceparent", b"00-1-2-01"),
        (b"tracestate", b"a=b"),
        (b"content-length", b"99"),
    ]
    passed = to_server(sent, host=b"s:1", client="3.3.3.3", request_id="r", size=7)
    assert passed == [
        (b"authorization", b"Bearer k"),
        (b"x-api-key", b"k"),
        (b"x-tenant-id", b"blue"),
        (b"traceparent", b"00-1-2-01"),
        (b"tracestate", b"a=b"),
        (b"host", b"s:1"),
        (b"content-length", b"7"),
        (b"x-request-id", b"r"),
        (b"x-forwarded-for", b"1.1.1.1, 2.2.2.2, 3.3.3.3"),
    ]


def test_to_client() -> None:
    answered = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"2"),
        (b"Connection", b"keep-alive, x-hop"),
        (b"X-Hop", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Date", b"now"),
        (b"Retry-After", b"1"),
        (b"X-Request-Id", b"r"),
    ]
    assert to_client(answered) == [
        (b"content-type", b"application/json"),
        (b"content-length", b"2"),
        (b"retry-after", b"1"),
    ]
