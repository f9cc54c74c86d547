"""Sends the tensors of a trainer to a server on the same machine, in files of a folder that both
share (docs/reinforcement_learning.md)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pagemill.weights.tensor_buckets import NamedTensors, buckets, default_bucket_bytes

_ANSWER_S = 30.0  # beyond what the server itself waits
_CONFLICT = 409
PauseMode = Literal["abort", "wait", "keep"]


class SendError(Exception):
    """The server refused a request or cannot be reached; `status` is that of HTTP, 0 if there was
    no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class WeightSender:
    """A client of the operator's routes of one server. Not thread-safe."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        bucket_bytes: int | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        """`address` is what the server has as `--admin-address`: the path of a Unix socket, or
        `http://HOST:PORT`, for which `api_key` has the scope admin. Tensors go in files of at most
        `bucket_bytes`: by default 1 GiB, or 1/64 of a model of more than 64 GiB. `timeout_s`: how
        long the server waits for running requests to stop; it has 30 s more to answer."""
        self._address, self._bucket_bytes, self._timeout_s = address, bucket_bytes, timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def send(
        self,
        tensors: NamedTensors,
        *,
        weight_version: str | None = None,
        mode: PauseMode = "keep",
        dtype: Any = None,
    ) -> None:
        """Replaces weights of the server; when this returns, it goes on with all of them. Tensors
        that are not sent stay as they are.

        Args:
            tensors: names, as in the checkpoint that the server has loaded, and tensors of torch on
                any device, or arrays of numpy; read once. Of tensors that are the same memory, such
                as tied weights, the first one counts.
            weight_version: what the weights are called from now on.
            mode: what happens to running requests: they continue with the new weights ("keep"),
                finish before ("wait"), or are aborted.
            dtype: the type of torch that tensors are converted to; the checkpoint's, if the trainer
                has another one.

        Raises:
            SendError: the server cannot be reached, or refuses a file or a tensor. Tensors of files
                before it are replaced already, and steps go on.
            WeightsError: a tensor is of a type that checkpoints do not have; as above.
            OSError: a file cannot be written.
        """
        transfer = self._post("init_weight_transfer_engine")
        folder, bucket_bytes = transfer["folder"], self._bucket_bytes
        if bucket_bytes is None:
            bucket_bytes = default_bucket_bytes(transfer["max_bytes"])
        self._start(mode)
        try:
            for bucket in buckets(tensors, bucket_bytes, dtype):
                with tempfile.NamedTemporaryFile(dir=folder, suffix=".safetensors") as file:
                    bucket.write(file.file)
                    self._post("update_weights", file=os.path.basename(file.name))
            self._post("finish_weight_update", weight_version=weight_version)
        except BaseException:
            self._abandon()
            raise

    @property
    def weight_version(self) -> str:
        """What the server calls its weights; "" until they get a name.

        Raises:
            SendError: the server cannot be reached.
        """
        return self._request("GET", "weight_info")["weight_version"]

    def _start(self, mode: PauseMode) -> None:
        """Pauses the server. If the answer is lost, it may be paused, which is ended; if another
        update is under way, that one goes on."""
        try:
            self._post("start_weight_update", mode=mode, timeout_s=self._timeout_s)
        except BaseException as error:
            if not (isinstance(error, SendError) and error.status == _CONFLICT):
                self._abandon()
            raise

    def _abandon(self) -> None:
        """Ends the update after an error, which is the one to raise, if there is one to end."""
        with contextlib.suppress(SendError):
            self._post("finish_weight_update")

    def _post(self, route: str, **fields: object) -> dict[str, Any]:
        return self._request("POST", route, fields)

    def _request(
        self, method: str, route: str, fields: dict[str, object] | None = None
    ) -> dict[str, Any]:
        connection = _connection(self._address, self._timeout_s + _ANSWER_S)
        body = None if fields is None else json.dumps(fields)
        try:
            connection.request(method, f"/{route}", body, self._headers)
            return _answer(connection.getresponse(), route)
        except (OSError, HTTPException) as error:
            raise SendError(f"{self._address} does not answer /{route}: {error}") from error
        finally:
            connection.close()


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: str, timeout_s: float) -> HTTPConnection:
    if not address.startswith("http://"):
        return _UnixConnection(address, timeout_s)
    return HTTPConnection(urlsplit(address).netloc, timeout=timeout_s)


def _answer(response: HTTPResponse, route: str) -> dict[str, Any]:
    text = response.read()
    try:
        answer: object = json.loads(text)
    except ValueError:
        answer = None
    found = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    if response.status != 200:
        error: object = found.get("error")
        said = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else None
        raise SendError(f"/{route}: {said or text[:200]!r}", response.status)
    return found
