"""Connections to MCP servers, with bounds on what a server sends at a time.

Only `mcp_server` imports this module, once an operator has named a server: it needs the package
`mcp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from pagemill.server.tools.server_file import ServerSpec, read_values

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MAX_MESSAGE_BYTES = 2**20
_EXIT_GRACE_S = 1.0


@contextlib.asynccontextmanager
async def http_transport(spec: ServerSpec) -> AsyncGenerator[TransportStreams]:
    """Streamable HTTP. Redirects stay on the URL's origin; proxies of the environment are not
    used."""
    assert spec.url is not None
    client = httpx2.AsyncClient(
        transport=_BoundedTransport(),
        headers={**read_values(spec.header_files), "accept-encoding": "identity"},
        timeout=httpx2.Timeout(spec.timeout, read=spec.timeout + 1),
        trust_env=False,
    )
    async with (
        client,
        streamable_http_client(
            spec.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def stdio_transport(spec: ServerSpec) -> AsyncGenerator[TransportStreams]:
    """A process that is started for the connection, and one line of JSON for each message. It gets
    no more of the environment than `PATH`, `HOME` and the like."""
    assert spec.command is not None
    process = await asyncio.create_subprocess_exec(
        *spec.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=get_default_environment() | read_values(spec.env_files),
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,  # what it starts ends with it
    )
    assert process.stdin is not None and process.stdout is not None
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process.stdout, received)
            group.start_soon(_write, process.stdin, sent)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        for stream in (received, incoming, outgoing, sent):
            stream.close()
        await asyncio.shield(_end(process))


async def _read(
    source: asyncio.StreamReader, received: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    """Reads messages until the process closes its pipe, or sends one that is too large or none."""
    async with received:
        with contextlib.suppress(ValueError, OSError, anyio.BrokenResourceError):
            while line := await source.readline():
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await received.send(SessionMessage(message))


async def _write(
    target: asyncio.StreamWriter, sent: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    with contextlib.suppress(OSError):
        async with sent:
            async for each in sent:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                target.write(text.encode() + b"\n")
                await target.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Closes the process's input, and kills it and what it started unless it ends then."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_exit(process), _EXIT_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_exit(process), _EXIT_GRACE_S)


async def _exit(process: asyncio.subprocess.Process) -> None:
    """Waits for the end of the process, which may still have something to write."""
    assert process.stdout is not None
    while await process.stdout.read(2**16):
        pass
    await process.wait()


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Bodies that are not streams of events, which have a bound of their own, are bounded here."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.AsyncBaseTransport`."""
        response = await super().handle_async_request(request)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        is_events = response.headers.get("content-type", "").startswith("text/event-stream")
        is_packed = "content-encoding" in response.headers  # of no known size
        limit = 0 if is_packed else None if is_events else MAX_MESSAGE_BYTES
        response.stream = _BoundedStream(stream, limit)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    """At most `limit` bytes of `stream`; None: all."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for part in self._stream:
            num_bytes += len(part)
            if self._limit is not None and num_bytes > self._limit:
                raise httpx2.StreamError(f"the response has more than {self._limit} bytes")
            yield part

    async def aclose(self) -> None:
        """See `httpx2.AsyncByteStream`."""
        await self._stream.aclose()
