"""URLs of media: which are fetched, from which addresses, and how much of what comes."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pagemill.render.errors import RenderError
from pagemill.render.media.addresses import is_public
from pagemill.render.media.fetch import MediaFetcher

HOST = "images.example"
PUBLIC = "93.184.215.14"
BODY = b"an image " * 20_000
PAUSE_S = 0.05


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        with contextlib.suppress(OSError):  # the client may have gone away
            self._answer()

    def _answer(self) -> None:
        match self.path.partition("?")[0]:
            case "/moved":
                self.send_response(302)
                self.send_header("Location", "/image")
                self.end_headers()
            case "/missing":
                self.send_error(404, "the secret of this host")
            case "/slow":
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(b"x")
                    time.sleep(PAUSE_S)
            case "/slow-headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    self.wfile.write(b"x")
                    time.sleep(PAUSE_S)
            case _:
                self.send_response(200)
                self.send_header("X-Host", self.headers["Host"])
                self.end_headers()
                self.wfile.write(self.path.encode() if "?" in self.path else BODY)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class _Network:
    """A resolver, and connections that all lead to the test's server."""

    def __init__(self, port: int, *addresses: str) -> None:
        self._port = port
        self._addresses = addresses
        self.connected: list[tuple[str, int]] = []
        self.resolved = 0

    def resolve(self, host: str, port: int) -> tuple[str, ...]:
        self.resolved += 1
        return self._addresses

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        self.connected.append(address)
        return socket.create_connection(("127.0.0.1", self._port), timeout)

    def fetcher(self, *domains: str, max_bytes: int = 2**20, timeout_s: float = 5.0):
        return MediaFetcher(
            domains=domains or (HOST,),
            max_bytes=max_bytes,
            timeout_s=timeout_s,
            resolve=self.resolve,
            connect=self.connect,
        )


def test_connects_to_the_address_that_was_checked(port: int) -> None:
    network = _Network(port, PUBLIC, "93.184.215.15")
    assert network.fetcher().fetch(f"http://{HOST}/image") == BODY
    assert network.connected == [(PUBLIC, 80)]
    assert network.resolved == 1, "a second answer could be another address"


def test_next_address_is_tried(port: int) -> None:
    network = _Network(port, "2606:4700::1111", PUBLIC)

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        if ":" in address[0]:
            raise OSError("no route")
        return network.connect(address, timeout)

    fetcher = MediaFetcher(
        domains=(HOST,), max_bytes=2**20, timeout_s=5, resolve=network.resolve, connect=connect
    )
    assert fetcher.fetch(f"http://{HOST}/image") == BODY
    assert network.connected == [(PUBLIC, 80)]


def test_query_is_sent_and_cannot_end_the_line(port: int) -> None:
    fetched = _Network(port, PUBLIC).fetcher().fetch(f"http://{HOST}/a?b=c%20d&e= f\u00e9")
    assert fetched == b"/a?b=c%20d&e=%20f%C3%A9"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://images.example/a", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("//images.example/a", "must begin with"),
        ("http://", "must begin with"),
        ("http://[::1/a", "not a URL"),
        ("http://images.example:99999/", "not a URL"),
        ("http://user:password@images.example/a", "user name"),
        ("http://other.example/a", "--allowed-media-domains"),
        ("http://images.example.evil.example/a", "--allowed-media-domains"),
        ("http://evil-images.example/a", "--allowed-media-domains"),
        ("http://images.example\\@evil.example/a", "user name"),
        ("http://images.example:8080/a", "--allowed-media-domains"),
        ("http://127.0.0.1/a", "--allowed-media-domains"),
        ("http://images.example/" + "a" * 9000, "characters"),
    ],
)
def test_url_that_is_not_allowed(port: int, url: str, why: str) -> None:
    network = _Network(port, PUBLIC)
    with pytest.raises(RenderError, match=why):
        network.fetcher().fetch(url)
    assert not network.resolved and not network.connected


def test_no_host_is_allowed_by_default(port: int) -> None:
    fetcher = MediaFetcher(domains=(), max_bytes=100, timeout_s=1)
    with pytest.raises(RenderError, match="--allowed-media-domains"):
        fetcher.fetch(f"http://{HOST}/image")


@pytest.mark.parametrize(
    ("domain", "url", "allowed"),
    [
        ("*.example", "http://a.example/x", True),
        ("*.example", "http://a.b.example/x", True),
        ("*.example", "http://example/x", False),
        ("*.example", "http://badexample/x", False),
        ("a.example", "http://A.Example./x", True),
        ("a.example:8443", "http://a.example:8443/x", True),
        ("a.example:8443", "http://a.example/x", False),
        ("a.example", "http://a.example:443/x", True),
    ],
)
def test_domains(port: int, domain: str, url: str, allowed: bool) -> None:
    fetcher = _Network(port, PUBLIC).fetcher(domain)
    if allowed:
        assert fetcher.fetch(url) == BODY
    else:
        with pytest.raises(RenderError, match="are not fetched from"):
            fetcher.fetch(url)


@pytest.mark.parametrize("addresses", [("10.0.0.1",), (PUBLIC, "127.0.0.1"), ("::1",), ()])
def test_all_addresses_of_a_host_must_be_public(port: int, addresses: tuple[str, ...]) -> None:
    network = _Network(port, *addresses)
    with pytest.raises(RenderError, match="not public") as error:
        network.fetcher().fetch(f"http://{HOST}/image")
    assert not network.connected
    assert not any(address in error.value.message for address in addresses)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::8.8.8.8", True),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("::127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("2001:0:7f00:1::1", False),
        ("fc00::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("not an address", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("path", "why"),
    [("/moved", "redirects to another URL"), ("/missing", "HTTP status 404")],
)
def test_answers_that_are_no_image(port: int, path: str, why: str) -> None:
    network = _Network(port, PUBLIC)
    with pytest.raises(RenderError, match=why) as error:
        network.fetcher().fetch(f"http://{HOST}{path}")
    assert "secret" not in error.value.message and len(network.connected) == 1


def test_size_is_bounded(port: int) -> None:
    with pytest.raises(RenderError, match="larger than 1000 bytes"):
        _Network(port, PUBLIC).fetcher(max_bytes=1000).fetch(f"http://{HOST}/image")


@pytest.mark.parametrize("path", ["/slow", "/slow-headers"])
def test_time_is_bounded(port: int, path: str) -> None:
    began = time.monotonic()
    with pytest.raises(RenderError, match=r"did not come within 0\.3 s"):
        _Network(port, PUBLIC).fetcher(timeout_s=0.3).fetch(f"http://{HOST}{path}")
    assert time.monotonic() - began < 3


def test_host_that_cannot_be_reached(port: int) -> None:
    def refuse(address: tuple[str, int], timeout: float) -> socket.socket:
        raise ConnectionRefusedError("93.184.215.14 refused")

    fetcher = MediaFetcher(
        domains=(HOST,),
        max_bytes=100,
        timeout_s=1,
        resolve=_Network(port, PUBLIC).resolve,
        connect=refuse,
    )
    with pytest.raises(RenderError, match=f"cannot be fetched from {HOST}"):
        fetcher.fetch(f"http://{HOST}/image")


def test_certificate_must_be_the_hosts(port: int) -> None:
    """The test's server speaks no TLS at all: nothing falls back to plain text."""
    with pytest.raises(RenderError, match="cannot be fetched"):
        _Network(port, PUBLIC).fetcher().fetch(f"https://{HOST}/image")
