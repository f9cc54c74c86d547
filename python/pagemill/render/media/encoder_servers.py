"""Files that other servers encode (`--mm-encoder-only`): their rows of embeddings come back.

    files = EncoderFiles.open("image", MediaConfig(encoder_urls=("http://10.0.0.2:8000",)))
    media = files.read(data)
    media.embeddings          # [rows, width]

Equal files go to the same server, whose caches may have them; if it fails or is busy, to the next
one, once. A server that has failed is asked last for a while.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from pagemill.config import MediaConfig
from pagemill.config.other_servers import read_key
from pagemill.inputs.media_embeds import EMBEDS_PARTS, embeds_param
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.render.media.embeds import MediaEmbeds
from pagemill.render.stop import Stop

PATH = "/v1/media/embeddings"
MAX_EMBEDS_BYTES = 2**27
"""Of the rows of a file, in f32."""
_MAX_ANSWER_BYTES = 2 * MAX_EMBEDS_BYTES  # base64 takes 4/3
_MAX_MESSAGE_CHARS = 500
_CHUNK_BYTES = 2**16
_CONNECT_S = 2.0
_LAST_FOR_S = 10.0
_BUSY = (429, 503)
_MAX_RETRY_AFTER_S = 60
_ATTEMPTS = 2
# An answer is no JSON, nested too deeply, or has other fields. Errors of msgspec and of UTF-8 are
# ValueErrors.
_UNREADABLE = (ValueError, RecursionError, KeyError)
_LOGGER = logging.getLogger("pagemill.render")

Count = Callable[[str, str], None]
"""Of a server's URL and an outcome: "completed", "refused" (the file), "busy" or "failed"."""


class MediaUnavailableError(RenderError):
    """No server has encoded a file: the request may be sent again, after `retry_after_s`; 0: at
    any time."""

    def __init__(self, message: str, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class _FailedError(Exception):
    """A server does not do its work; the message says why."""


class _BusyError(Exception):
    """A server has no room for a file, perhaps until `retry_after_s`; 0: it does not say."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


class _Datum(msgspec.Struct):
    part: dict[str, Any]


class _Answer(msgspec.Struct):
    data: tuple[_Datum]


class _Refusal(msgspec.Struct):
    error: dict[str, Any]


class _Place(NamedTuple):
    host: str
    port: int | None
    tls: ssl.SSLContext | None


class _Reply(NamedTuple):
    status: int
    retry_after: str
    body: bytes


class _OpenSocket:
    """Implements `stop.Killable`."""

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened

    def kill(self) -> None:
        """A read or a write of it ends, or fails."""
        with contextlib.suppress(OSError):  # it is closed
            # Not that of an SSLSocket, which another thread may be in.
            socket.socket.shutdown(self._opened, socket.SHUT_RDWR)


class EncoderServers:
    """Asks one of several servers. Thread-safe; a call blocks for twice the time limit at most.
    `count` is called for each request to a server."""

    def __init__(self, urls: Sequence[str], timeout_s: float, key: str = "") -> None:
        """`urls` name scheme, host and port; `key` is sent with requests, unless it is ""."""
        self._places = {url: _place(url) for url in urls}
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._failed_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self.count: Count = lambda url, outcome: None

    def encode(self, kind: MediaKind, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """The image or audio in the file `data`, as embeddings. When `stop` is set, the connection
        is closed, with which the server ends the request, and no further one is asked.

        Raises:
            RenderError: the file is refused.
            MediaUnavailableError: no server that was asked has encoded it.
        """
        stop = stop or Stop()
        retry_after_s: list[int] = []
        url = f"data:application/octet-stream;base64,{base64.b64encode(data).decode('ascii')}"
        part = {"type": f"{kind}_url", f"{kind}_url": {"url": url}}
        body = msgspec.json.encode({"input": [part]})
        for server in self._order(data)[:_ATTEMPTS]:
            if stop.is_set():
                break
            try:
                media = self._encoded(server, kind, body, stop)
            except _BusyError as busy:
                self.count(server, "busy")
                retry_after_s.append(busy.retry_after_s)
                continue
            except _FailedError as error:
                if stop.is_set():
                    break
                _LOGGER.warning("the encoder at %s failed: %s", server, error)
                self.count(server, "failed")
                with self._lock:
                    self._failed_at[server] = time.monotonic()
                continue
            except RenderError:
                self.count(server, "refused")
                raise
            self.count(server, "completed")
            with self._lock:
                self._failed_at.pop(server, None)
            return media
        raise MediaUnavailableError(
            f"no server has encoded the {kind} (--encoder-urls); send the request again",
            min(retry_after_s, default=0),
        )

    def _order(self, data: bytes) -> list[str]:
        """The servers from the one that has such files on; those that failed lately at the end."""
        servers = list(self._places)
        first = int.from_bytes(hashlib.sha256(data).digest()[:8], "little") % len(servers)
        since = time.monotonic() - _LAST_FOR_S
        with self._lock:
            failed = {server for server, at in self._failed_at.items() if at > since}
        turned = servers[first:] + servers[:first]
        return sorted(turned, key=lambda server: server in failed)

    def _encoded(self, server: str, kind: MediaKind, body: bytes, stop: Stop) -> PreparedMedia:
        try:
            status, retry_after, answer = self._post(self._places[server], body, stop)
        except (OSError, http.client.HTTPException) as error:
            raise _FailedError(str(error) or type(error).__name__) from error
        if status in (400, 413):
            raise RenderError(_message(answer))
        if status in _BUSY:
            raise _BusyError(_seconds(retry_after))
        if status != 200:
            raise _FailedError(f"HTTP status {status}: {_message(answer)}")
        try:
            part = msgspec.json.decode(answer, type=_Answer).data[0].part
            fields: Mapping[str, Any] = part[embeds_param(kind)]
            return MediaEmbeds(None, MAX_EMBEDS_BYTES).read(kind, fields)
        except (*_UNREADABLE, TypeError, RenderError) as error:
            raise _FailedError(f"its answer has no embeddings: {error}") from error

    def _post(self, place: _Place, body: bytes, stop: Stop) -> _Reply:
        deadline = time.monotonic() + self._timeout_s
        connect_s = min(_CONNECT_S, self._timeout_s)
        if place.tls is None:
            connection = http.client.HTTPConnection(place.host, place.port, connect_s)
        else:
            connection = http.client.HTTPSConnection(
                place.host, place.port, timeout=connect_s, context=place.tls
            )
        with contextlib.closing(connection):
            connection.connect()
            open_socket = connection.sock  # the response takes it over

            def wait() -> None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no answer within {self._timeout_s:g} s")
                open_socket.settimeout(left)

            with stop.ends(_OpenSocket(open_socket)):
                wait()
                connection.request("POST", PATH, body, self._headers)
                wait()
                with contextlib.closing(connection.getresponse()) as response:
                    answer = bytearray()
                    while not response.isclosed():
                        wait()
                        answer += response.read(_CHUNK_BYTES)
                        if len(answer) > _MAX_ANSWER_BYTES:
                            raise OSError(f"an answer of more than {_MAX_ANSWER_BYTES} bytes")
                    retry_after = response.headers.get("Retry-After", "")
                    return _Reply(response.status, retry_after, bytes(answer))


class EncoderFiles:
    """Implements `MediaFiles` (media_files.py) by other servers, which know limits of what files
    hold. `max_bytes`: of a file."""

    def __init__(self, kind: MediaKind, max_bytes: int, servers: EncoderServers) -> None:
        self.max_bytes = max_bytes
        self.servers = servers
        self._kind: MediaKind = kind

    @classmethod
    def open(cls, kind: MediaKind, config: MediaConfig) -> EncoderFiles:
        """Those of files of `kind`.

        Raises:
            RenderError: no server encodes such files.
            ConfigError: the key cannot be read.
        """
        if kind not in EMBEDS_PARTS.values():
            raise RenderError(f"a {kind} is not encoded by other servers (--encoder-urls)")
        key = read_key("--encoder-key-file", config.encoder_key_file)
        most = config.max_image_bytes if kind == "image" else config.max_audio_bytes
        return cls(kind, most, EncoderServers(config.encoder_servers, config.encoder_timeout, key))

    def read(self, data: bytes, stop: Stop | None = None) -> PreparedMedia:
        """See `MediaFiles.read`; raises MediaUnavailableError, too."""
        if len(data) > self.max_bytes:
            raise RenderError(f"the file is larger than {self.max_bytes} bytes")
        return self.servers.encode(self._kind, data, stop)

    def read_opened(self, media: Any, /) -> PreparedMedia:
        """Refuses it: other servers read files."""
        del media
        raise RenderError(f"give the file of the {self._kind}, or its URL: other servers read it")


def _place(url: str) -> _Place:
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return _Place(parts.hostname or "", parts.port, tls)


def _seconds(retry_after: str) -> int:
    """Of a header Retry-After, which may also be missing, or a date: 0 then."""
    is_number = retry_after.isascii() and retry_after.isdigit()
    return min(int(retry_after[:9]), _MAX_RETRY_AFTER_S) if is_number else 0


def _message(answer: bytes) -> str:
    """What a server says of a file that it refuses, without its words around it."""
    try:
        message = str(msgspec.json.decode(answer, type=_Refusal).error["message"])
    except _UNREADABLE:
        return "no reason is given"
    _, _, reason = message.rpartition("` cannot be read: ")
    return reason[:_MAX_MESSAGE_CHARS].rstrip(".")
