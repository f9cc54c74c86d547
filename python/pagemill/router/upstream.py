"""HTTP/1.1 to one server: pooled connections, time limits, one kind of failure.

    reply = await upstream.send("POST", "/v1/completions", headers, body)
    async for part in reply.parts(): ...
    await reply.close()

`close` before the end of the body closes the connection, so that the server aborts the request.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httpcore2

from pagemill.router.headers import Headers

_KEEP_ALIVE_S = 30.0  # less than servers keep idle connections, so that they close none in use
_MAX_IDLE = 256
_OWN_CONNECTIONS = 8  # for probes and KV events, however many requests there are


class UpstreamError(Exception):
    """The server could not be reached, or broke off. The text says which, for logs and clients.

    `timed_out`: it accepted the request and then said nothing for the read timeout. `by_client`:
    the client took so little that the server may have given up on it.
    """

    def __init__(self, message: str, *, timed_out: bool = False, by_client: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.by_client = by_client


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """In seconds; `read_s` is the longest pause between two bytes."""

    connect_s: float
    read_s: float


class Reply:
    """A response whose head has arrived. The caller closes it, however it ends."""

    def __init__(self, url: str, response: httpcore2.Response) -> None:
        self._url = url
        self._response = response
        self.status = response.status
        self.headers: Headers = response.headers

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives; nothing is read ahead of the caller.

        Raises:
            UpstreamError: the server broke off.
        """
        with _failures(self._url):
            async for part in cast(AsyncIterable[bytes], self._response.stream):
                yield part

    async def body(self, max_bytes: int) -> bytes:
        """The whole body. Closes the reply.

        Raises:
            UpstreamError: the server broke off, or the body is larger than `max_bytes`.
        """
        try:
            received = bytearray()
            async for part in self.parts():
                received += part
                if len(received) > max_bytes:
                    raise UpstreamError(f"{self._url} answers with more than {max_bytes} bytes")
            return bytes(received)
        finally:
            await self.close()

    async def close(self) -> None:
        """Idempotent."""
        await self._response.aclose()


class Upstream:
    """The connections to one server. Event loop only."""

    def __init__(
        self,
        url: str,
        limits: TimeLimits,
        max_connections: int,
        uds: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`uds`: the Unix socket that the server listens on, if it is not a port; `url` is its
        name then. `tls`: of a `url` with https."""
        parts = urlsplit(url)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.host = parts.netloc.encode()
        self._limits = limits
        self._origin = (parts.scheme, parts.hostname or "", parts.port)
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=max_connections + _OWN_CONNECTIONS,
            max_keepalive_connections=min(_MAX_IDLE, max_connections),
            keepalive_expiry=_KEEP_ALIVE_S,
            uds=uds,
            ssl_context=tls,
        )

    async def send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes = b"",
        limits: TimeLimits | None = None,
    ) -> Reply:
        """Sends a request; returns when the head of the response is here.

        Raises:
            UpstreamError: it never came.
        """
        limits = limits or self._limits
        scheme, host, port = self._origin
        request = httpcore2.Request(
            method,
            httpcore2.URL(scheme=scheme, host=host, port=port, target=target),
            headers=headers,
            content=body,
            extensions={
                "timeout": {
                    "connect": limits.connect_s,
                    "pool": limits.connect_s,
                    "read": limits.read_s,
                    "write": limits.read_s,
                }
            },
        )
        with _failures(self.url):
            return Reply(self.url, await self._pool.handle_async_request(request))

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.aclose()


@contextlib.contextmanager
def _failures(url: str) -> Generator[None, None, None]:
    try:
        yield
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
        if isinstance(error.__context__, ssl.SSLError):
            raise _refused(url, error.__context__) from error
        raise UpstreamError(f"{url} cannot be reached") from error
    except ssl.SSLError as error:  # of a handshake that the server refuses when it is over
        raise _refused(url, error) from error
    except httpcore2.PoolTimeout as error:
        raise UpstreamError(f"all connections to {url} are in use") from error
    except (httpcore2.ReadTimeout, httpcore2.WriteTimeout) as error:
        raise UpstreamError(f"{url} does not answer in time", timed_out=True) from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise UpstreamError(f"{url} broke off the connection") from error


def _refused(url: str, error: ssl.SSLError) -> UpstreamError:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not accepted ({error.verify_message}; --server-ca-file)"
    else:
        reason = f"TLS fails ({error.reason or error}; --server-certfile)"
    return UpstreamError(f"{url} cannot be reached: {reason}")
