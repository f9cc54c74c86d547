"""Files that other servers encode: which one is asked, what it gets, and what failures do."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pagemill.config import ConfigError, MediaConfig
from pagemill.render.errors import RenderError
from pagemill.render.media.embeds import MediaEmbeds, embeds_part
from pagemill.render.media.encoder_servers import (
    PATH,
    EncoderFiles,
    EncoderServers,
    MediaUnavailableError,
)
from pagemill.render.stop import Stop

ROWS = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
FORM = {"shape": [24, 7], "image_grid_thw": [1, 6, 4]}


class Sent(NamedTuple):
    """A request, and the file in it."""

    path: str
    headers: Mapping[str, str]
    part: dict[str, Any]

    @property
    def file(self) -> bytes:
        url: str = self.part[self.part["type"]]["url"]
        return base64.b64decode(url.partition(",")[2])


def encoded(kind: Any = "image", rows: np.ndarray = ROWS) -> tuple[int, Any]:
    """The answer of a server."""
    return 200, {"data": [{"part": embeds_part(kind, rows, FORM if kind == "image" else {})}]}


@contextlib.contextmanager
def server(
    answer: Callable[[], tuple[int, Any]] = encoded,
    headers: Mapping[str, str] = {},
    until_left: threading.Event | None = None,
) -> Iterator[tuple[str, list[Sent]]]:
    """A server that gives this answer, and what it was sent; or one that says by `until_left` that
    it has a request, and does not answer before its client has left."""
    sent: list[Sent] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append(Sent(self.path, dict(self.headers), body["input"][0]))
            if until_left is not None:
                until_left.set()
                assert self.rfile.read(1) == b""
            status, content = answer()
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            with contextlib.suppress(OSError):  # the client has left
                self.send_response(status)
                for header in headers.items():
                    self.send_header(*header)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}", sent
        finally:
            http.shutdown()
            thread.join()


def closed_url() -> str:
    """That of no server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        return f"http://127.0.0.1:{http.server_address[1]}"


class Counts:
    """What was counted."""

    def __init__(self, servers: EncoderServers) -> None:
        self.seen: list[tuple[str, str]] = []
        servers.count = lambda url, outcome: self.seen.append((url, outcome))


def test_rows_come_back_to_the_last_bit(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    with server() as (url, sent):
        config = MediaConfig(encoder_urls=(f"{url}/",), encoder_key_file=str(key))
        media = EncoderFiles.open("image", config).read(b"file")
    assert media.embeddings is not None and media.embeddings.tobytes() == ROWS.tobytes()
    assert (media.kind, media.grid, media.values.shape) == ("image", (1, 6, 4), (24, 7))
    (request,) = sent
    assert request.path == PATH and request.file == b"file"
    assert request.headers["Authorization"] == "Bearer secret"
    with server(lambda: encoded("audio")) as (url, sent):
        EncoderFiles.open("audio", MediaConfig(encoder_urls=(url,))).read(b"sound")
    assert sent[0].part["type"] == "audio_url" and "Authorization" not in sent[0].headers


def test_equal_files_go_to_the_same_server() -> None:
    files = [b"%d" % number for number in range(12)]
    with server() as (one, to_one), server() as (two, to_two):
        servers = EncoderServers([one, two], 60)
        for file in files * 2:
            servers.encode("image", file)
    first, second = ({each.file for each in sent} for sent in (to_one, to_two))
    assert first and second and not first & second
    assert len(to_one) + len(to_two) == 2 * len(files)


def test_another_one_is_tried_once() -> None:
    dead = closed_url()
    with server() as (url, sent):
        servers = EncoderServers([dead, url], 60)
        counts = Counts(servers)
        files = [b"%d" % number for number in range(8)]
        for file in files:
            assert servers.encode("image", file).embeddings is not None
        assert len(sent) == len(files)
    # It is asked last after its first failure.
    assert counts.seen.count((dead, "failed")) == 1
    servers = EncoderServers([dead, closed_url(), closed_url()], 60)
    counts = Counts(servers)
    with pytest.raises(MediaUnavailableError, match="send the request again"):
        servers.encode("image", b"0")
    assert [outcome for _, outcome in counts.seen] == ["failed"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error": {"message": "no memory"}}),
        (401, {}),
        (302, b""),
        (500, b'{"error": {"message": "\xff"}}'),
        (200, b"{"),
        (200, b'{"data": [{"part": {"image_embeds": "\xff"}}]}'),
        (200, b'{"data": [{"part": {"a": ' + b"[" * 100_000),
        (200, {"data": []}),
        (200, {"data": [{"part": {}}]}),
        (200, {"data": [{"part": {"image_embeds": {"image_embeds": "eA=="}}}]}),
        encoded("audio"),
        encoded(rows=ROWS[0]),
    ],
)
def test_failures(answer: tuple[int, Any]) -> None:
    with server(lambda: answer) as (url, _):
        servers = EncoderServers([url], 60)
        counts = Counts(servers)
        with pytest.raises(MediaUnavailableError):
            servers.encode("image", b"file")
    assert counts.seen == [(url, "failed")]


def test_a_server_that_does_not_answer() -> None:
    done = threading.Event()

    def wait() -> tuple[int, Any]:
        done.wait(60)
        return encoded()

    with server(wait) as (url, _):
        with pytest.raises(MediaUnavailableError):
            EncoderServers([url], 0.2).encode("image", b"file")
        done.set()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_has_not_failed(status: int) -> None:
    def busy() -> tuple[int, Any]:
        return status, {"error": {"message": "the queue is full"}}

    with server(busy, {"Retry-After": "7"}) as (url, sent), server() as (free, _):
        servers = EncoderServers([url, free], 60)
        counts = Counts(servers)
        files = [b"%d" % number for number in range(8)]
        for file in files * 2:
            assert servers.encode("image", file).embeddings is not None
        assert len(sent) == counts.seen.count((url, "busy")) > 0
        assert len({each.file for each in sent}) == len(sent) // 2, "it is asked first again"
    for stated, expected in (("7", 7), ("900", 60), ("9" * 5000, 60), ("", 0), ("\u00b2", 0)):
        with (
            server(busy, {"Retry-After": stated}) as (one, _),
            server(busy, {"Retry-After": "120"}) as (two, _),
        ):
            servers = EncoderServers([one, two], 60)
            counts = Counts(servers)
            with pytest.raises(MediaUnavailableError) as error:
                servers.encode("image", b"file")
            assert error.value.retry_after_s == expected
            assert [outcome for _, outcome in counts.seen] == ["busy"] * 2


def test_the_connection_is_closed_with_the_request() -> None:
    arrived, stop = threading.Event(), Stop()
    errors: list[RenderError] = []

    def encode() -> None:
        with pytest.raises(MediaUnavailableError) as error:
            servers.encode("image", b"file", stop)
        errors.append(error.value)

    with server(until_left=arrived) as (url, sent), server() as (other, to_other):
        servers = EncoderServers([url], 600)
        counts = Counts(servers)
        thread = threading.Thread(target=encode)
        thread.start()
        assert arrived.wait(60)
        stop.set()
        thread.join(60)
        assert errors and not counts.seen, "the server has not failed"
        stop = Stop()
        assert EncoderServers([other], 60).encode("image", b"file", stop).embeddings is not None
        stop.set()  # its connection is gone
    assert len(sent) == len(to_other) == 1


def test_files_that_are_refused() -> None:
    """Other servers would refuse them, too."""
    message = "`input[0]` cannot be read: the image has too many pixels."
    refusal = 400, {"error": {"message": message}}
    with (
        server(lambda: refusal) as (one, _),
        server(lambda: refusal) as (other, _),
        server() as (two, to),
    ):
        servers = EncoderServers([one, other], 60)
        counts = Counts(servers)
        with pytest.raises(RenderError, match="^the image has too many pixels$") as refused:
            servers.encode("image", b"file")
        assert not isinstance(refused.value, MediaUnavailableError)
        assert [outcome for _, outcome in counts.seen] == ["refused"]
        files = EncoderFiles.open("image", MediaConfig(encoder_urls=(two,), max_image_bytes=1024))
        with pytest.raises(RenderError, match="larger than 1024 bytes"):
            files.read(b"a" * 1025)
        with pytest.raises(RenderError, match="give the file of the image"):
            files.read_opened(object())
        stop = Stop()
        stop.set()
        with pytest.raises(MediaUnavailableError):
            files.read(b"file", stop)
        with pytest.raises(RenderError, match="a video is not encoded by other servers"):
            EncoderFiles.open("video", MediaConfig(encoder_urls=(two,)))
        assert not to


def test_options() -> None:
    for urls, words in (
        (("http://a:1", "http://a:1/"), "the same server is named twice"),
        (("a:1",), "is not a server; write http://HOST:PORT"),
        (("http://a:1/v1",), "is not a server"),
        (("http://key@a:1",), "is not a server"),
    ):
        with pytest.raises(ConfigError, match=words):
            MediaConfig(encoder_urls=urls)
    listed = MediaConfig(encoder_urls=("http://a:1, https://b", "http://c:2/"))
    assert listed.encoder_servers == ("http://a:1", "https://b", "http://c:2")
    with pytest.raises(ConfigError, match="--encoder-key-file /none/such: No such file"):
        EncoderFiles.open(
            "image", MediaConfig(encoder_urls=("http://a:1",), encoder_key_file="/none/such")
        )


def test_parts_with_embeddings() -> None:
    """What is written is read, of any width unless one is wanted."""
    given = embeds_part("audio", ROWS[:, :3], {})["audio_embeds"]
    for width in (None, 3):
        media = MediaEmbeds(width, 6 * 3 * 4).read("audio", given)
        assert media.embeddings is not None and media.embeddings.tolist() == ROWS[:, :3].tolist()
        assert media.grid is None and not media.values.size and media.num_bytes == 72
    for width, most in ((4, 2**20), (3, 71)):
        with pytest.raises(RenderError, match=r"have the shape \[6, 3\]; this model takes"):
            MediaEmbeds(width, most).read("audio", given)
