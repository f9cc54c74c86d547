"""A server of tools that speaks the Model Context Protocol.

Only `open_servers` imports this module, once an operator has named a server: it needs the package
`mcp`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import mcp_types
import msgspec
from mcp import MCPError
from mcp.client import Client

from pagemill.server.tools.mcp_transports import http_transport, stdio_transport
from pagemill.server.tools.server_file import ServerSpec
from pagemill.server.tools.tool import CLOSED, TIMED_OUT, Tool, ToolError, ToolResult

T = TypeVar("T")

_LOGGER = logging.getLogger("pagemill.server")
_MODE = "auto"  # asks the server for the version of the protocol
_MAX_PAGES = 16
_MAX_TOOLS = 128
_MAX_DESCRIPTION_BYTES = 2**18  # of all tools, with their schemas
_MAX_ERROR_CHARS = 1000
_CLOSE_GRACE_S = 3.0


class McpServer:
    """Implements `tool.ToolServer`. It connects when it is used first, and again if the connection
    was lost; the requests of a process share the connection. Event loop only."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._connection: _Connection | None = None
        self._dropped: set[_Connection] = set()  # those that are still being closed
        self._slots = asyncio.Semaphore(spec.max_concurrent_calls)

    @property
    def label(self) -> str:
        """See `ToolServer`."""
        return self._spec.label

    @property
    def requires_approval(self) -> bool:
        """See `ToolServer`."""
        return self._spec.require_approval

    async def list_tools(self) -> Sequence[Tool]:
        """See `ToolServer`. A connection may have been lost, or forgotten by its server, since it
        was used last: then there is another attempt."""
        is_first = self._connection is None
        try:
            return await self._answer(self._listed, is_listing=True)
        except ToolError as error:
            is_lost = self._connection is None and error.code != TIMED_OUT
            if is_first or not is_lost:
                raise
        return await self._answer(self._listed, is_listing=True)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """See `ToolServer`."""
        result = await self._answer(lambda client: client.call_tool(name, dict(arguments)))
        text = "\n".join(_texts(result))
        num_bytes = len(text.encode(errors="replace"))
        if num_bytes > self._spec.max_result_bytes:
            raise ToolError(
                f"The result of {name[:100]!r} has {num_bytes} bytes, and at most"
                f" {self._spec.max_result_bytes} are passed on. Ask for less."
            )
        return ToolResult(text, result.is_error)

    async def close(self) -> None:
        """See `ToolServer`."""
        if self._connection is not None:
            self._dropped.add(self._connection)
        await asyncio.gather(*(each.close() for each in self._dropped))

    async def _answer(
        self, ask: Callable[[Client], Awaitable[T]], *, is_listing: bool = False
    ) -> T:
        """The answer to `ask`.

        Raises:
            ToolError: there is none in time.
        """
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._spec.timeout), self._slots:
                connection = self._connected()
                return await ask(await connection.client())
        except TimeoutError as error:
            self._failed(connection, is_listing)
            raise ToolError(
                f"The MCP server {self.label!r} did not answer within {self._spec.timeout:g} s.",
                TIMED_OUT,
            ) from error
        except MCPError as error:
            self._failed(connection, is_listing or error.code == CLOSED)
            raise ToolError(error.message[:_MAX_ERROR_CHARS], error.code) from error
        except ToolError:
            raise
        except Exception as error:  # of the transport, or of an answer that is none
            self._failed(connection, is_listing)
            _LOGGER.warning("MCP server %s: %s", self.label, _reason(error))
            raise ToolError(
                f"The MCP server {self.label!r} cannot be used; the log of this server says why."
            ) from error

    def _connected(self) -> _Connection:
        if self._connection is None or self._connection.is_over:
            self._connection = _Connection(self._spec)
        return self._connection

    def _failed(self, connection: _Connection | None, is_lost: bool) -> None:
        """Drops a connection that is lost, or never was one. The failure of a call alone says
        nothing about the calls of others: a tool may take long, and answer what it likes."""
        if connection is None or (connection.is_open and not is_lost):
            return
        connection.abort()
        self._dropped = {each for each in self._dropped if not each.is_over} | {connection}
        if self._connection is connection:
            self._connection = None

    async def _listed(self, client: Client) -> list[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        num_bytes = 0
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for each in filter(self._is_allowed, page.tools):
                tools.append(_tool(each))
                num_bytes += len(msgspec.json.encode(each.input_schema))
                num_bytes += len(each.name) + len(each.description or "")
            if len(tools) > _MAX_TOOLS or num_bytes > _MAX_DESCRIPTION_BYTES:
                break
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise ToolError(
            f"The MCP server {self.label!r} lists more than {_MAX_TOOLS} tools, or more than"
            f" {_MAX_DESCRIPTION_BYTES} bytes of them; the operator can choose some with"
            " `allowed_tools`."
        )

    def _is_allowed(self, tool: mcp_types.Tool) -> bool:
        allowed = self._spec.allowed_tools
        return allowed is None or tool.name in allowed


class _Connection:
    """A client in a task of its own, because one task has to open and to close it."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def is_open(self) -> bool:
        """Whether the server has answered."""
        return self._opened.done()

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed, or was lost."""
        return self._task.done()

    async def client(self) -> Client:
        """The client, once the server has answered.

        Raises:
            Exception: it did not.
        """
        return await asyncio.shield(self._opened)

    def abort(self) -> None:
        """Closes it, and waits for nothing."""
        self._task.cancel()

    async def close(self) -> None:
        """Closes it."""
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_GRACE_S)
        self._task.cancel()

    async def _run(self) -> None:
        transport = http_transport if self._spec.url is not None else stdio_transport
        failure: Exception = ToolError(f"The connection to {self._spec.label!r} is closed.")
        try:
            async with Client(transport(self._spec), cache=None, mode=_MODE) as client:
                self._opened.set_result(client)
                await self._closing.wait()
        except Exception as error:
            failure = error
            if self._opened.done():
                _LOGGER.warning("MCP server %s: %s", self._spec.label, _reason(error))
        finally:
            if not self._opened.done():
                self._opened.set_exception(failure)
                self._opened.exception()  # read, so that it is not reported if no call waits


def _tool(described: mcp_types.Tool) -> Tool:
    annotations = described.annotations
    return Tool(
        described.name,
        described.description,
        described.input_schema,
        None if annotations is None else annotations.model_dump(by_alias=True, exclude_none=True),
    )


def _texts(result: mcp_types.CallToolResult) -> Iterator[str]:
    """The result as text; what is none is named."""
    if not result.content and result.structured_content is not None:
        yield msgspec.json.encode(result.structured_content).decode()
    for block in result.content:
        if isinstance(block, mcp_types.TextContent):
            yield block.text
        elif isinstance(block, mcp_types.EmbeddedResource) and isinstance(
            block.resource, mcp_types.TextResourceContents
        ):
            yield block.resource.text
        else:
            yield f"[a part of type {block.type} is left out]"


def _reason(error: BaseException) -> str:
    """The first of the errors that `error` groups, for the log."""
    if isinstance(error, BaseExceptionGroup):
        return _reason(cast(BaseExceptionGroup[BaseException], error).exceptions[0])
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
