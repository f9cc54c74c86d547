"""A client of a running server: what `chat`, `complete`, `top` and `bench serve` need of one."""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

_MAX_LINE_BYTES = 2**24
_MAX_METRICS_BYTES = 2**25
_PORTION_CHARS = 4096  # servers refuse to tokenize what is longer than their context


class ClientError(ValueError):
    """The server could not be reached, or refused; the message says which and why."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is. `path` is what stands before /v1, mostly nothing; `socket` is the path of
    a Unix socket, "" if the server listens on a port."""

    host: str
    port: int
    tls: bool
    path: str
    socket: str = ""

    @classmethod
    def parse(cls, url: str) -> "ServerAddress":
        """Returns the address in `url`, with or without a scheme and a final /v1, or that of the
        Unix socket at the absolute path `url`.

        Raises:
          ClientError: it is not the URL of an HTTP server.
        """
        if url.startswith("/"):
            return cls("localhost", 80, False, "", url)
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise ClientError(f"{url} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(f"{url} is not the URL of an HTTP server")
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, path)

    def __str__(self) -> str:
        return self.socket or f"{self.host}:{self.port}"

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection to be opened by its first request."""
        if self.socket:
            return _SocketConnection(self.socket, timeout_s)
        if self.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout_s, context=context
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ServerClient:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, url: str, api_key: str = "", timeout_s: float = 600.0) -> None:
        """Remembers where the server is; nothing is sent yet.

        Raises:
          ClientError: `url` is not the URL of an HTTP server.
        """
        self.address = ServerAddress.parse(url)
        self._api_key = api_key
        self._timeout_s = timeout_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def first_model(self) -> str:
        """Returns the name of the model that the server serves.

        Raises:
          ClientError: the server is not there, refuses, or serves none.
        """
        return str(self._models()[0]["id"])

    def model_root(self, model: str) -> str | None:
        """Returns where the server says that it has the model from; None if it does not say.

        Raises:
          ClientError: the server is not there, refuses, or serves none.
        """
        roots = [card.get("root") for card in self._models() if card["id"] == model]
        return str(roots[0]) if roots and roots[0] else None

    def count_tokens(self, text: str, model: str | None) -> int:
        """Returns the tokens of `text`, without special ones, as `/tokenize` counts them for a
        model; None is the first served.

        Raises:
          ClientError: the server is not there, refuses, or has no such route.
        """
        body: dict[str, Any] = {"add_special_tokens": False}
        if model is not None:
            body["model"] = model
        total = 0
        for portion in _portions(text):
            count = _field(self._read("POST", "/tokenize", {**body, "prompt": portion}), "count")
            if not isinstance(count, int):
                raise ClientError("the server's answer to /tokenize has no `count`")
            total += count
        return total

    def metrics(self) -> str:
        """Returns what the server's /metrics says.

        Raises:
          ClientError: the server is not there, refuses, or says too much.
        """
        connection, response = self._send("GET", "/metrics", None)
        try:
            data = response.read(_MAX_METRICS_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the connection to the server broke: {error}") from None
        finally:
            connection.close()
        if len(data) > _MAX_METRICS_BYTES:
            raise ClientError(f"the server's metrics exceed {_MAX_METRICS_BYTES} bytes")
        return data.decode("utf-8", "replace")

    def _models(self) -> list[dict[str, Any]]:
        models = self._read("GET", "/v1/models", None).get("data", [])
        if not models:
            raise ClientError("the server serves no model")
        return models

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the events of a streamed answer.

        Raises:
          ClientError: the server is not there, refuses, or fails midway.
        """
        connection, response = self._send("POST", path, {**body, "stream": True})
        try:
            while line := response.readline(_MAX_LINE_BYTES):
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise ClientError(_error_text(event, 500))
                yield event
            raise ClientError("the server broke off its answer")
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the connection to the server broke: {error}") from None
        finally:
            connection.close()

    def _read(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection, response = self._send(method, path, body)
        try:
            return json.loads(response.read())
        except (OSError, ValueError) as error:
            raise ClientError(f"the server's answer to {path} cannot be read: {error}") from None
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        at = self.address
        connection = at.connection(self._timeout_s)
        payload = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, at.path + path, payload, self.headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ClientError(_error_text(_parsed(response.read()), response.status))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ClientError(
                f"no server answers at {at} ({error}): start one with"
                " `pagemill serve`, or name it with --url"
            ) from None
        except ClientError:
            connection.close()
            raise
        return connection, response


def _portions(text: str) -> Iterator[str]:
    """Parts of a text, cut before blanks, where tokens begin."""
    begin = 0
    while len(text) - begin > _PORTION_CHARS:
        cut = text.rfind(" ", begin + 1, begin + _PORTION_CHARS)
        end = cut if cut > 0 else begin + _PORTION_CHARS
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return {}


def _field(value: Any, name: str) -> Any:
    return cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None


def _error_text(body: Any, status: int) -> str:
    error = _field(body, "error")
    message = _field(error, "message") or error
    if isinstance(message, str):
        return f"the server refused ({status}): {message}"
    return f"the server refused with HTTP status {status}"
