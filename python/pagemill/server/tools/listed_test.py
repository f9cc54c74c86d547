"""Lists of tools are kept for a while, and failures for a shorter one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from pagemill.server.tools.listed import FAILURE_KEPT_S, KEPT_S, ListedServer
from pagemill.server.tools.tool import (
    CLOSED,
    INVALID_ARGUMENTS,
    Tool,
    ToolError,
    ToolResult,
)


class _Server:
    """Counts listings, the first `failures` of which fail."""

    label = "fake"
    requires_approval = True

    def __init__(self, failures: int = 0) -> None:
        self.now = 1000.0
        self.listings = 0
        self.may_list = asyncio.Event()
        self.may_list.set()
        self.call_error: ToolError | None = None
        self.is_closed = False
        self._failures = failures

    async def list_tools(self) -> Sequence[Tool]:
        self.listings += 1
        await self.may_list.wait()
        if self.listings <= self._failures:
            raise ToolError("away")
        return [Tool(f"tool_{self.listings}")]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        if self.call_error is not None:
            raise self.call_error
        return ToolResult(name)

    async def close(self) -> None:
        self.is_closed = True


def run(test: Callable[[_Server, ListedServer], Awaitable[None]], failures: int = 0) -> None:
    async def body() -> None:
        server = _Server(failures)
        listed = ListedServer(server, lambda: server.now)
        assert (listed.label, listed.requires_approval) == ("fake", True)
        await test(server, listed)
        await listed.close()
        assert server.is_closed

    asyncio.run(body())


def test_list_is_kept_for_a_while():
    async def body(server: _Server, listed: ListedServer) -> None:
        for _ in range(3):
            assert [tool.name for tool in await listed.list_tools()] == ["tool_1"]
        server.now += KEPT_S - 1
        await listed.list_tools()
        assert server.listings == 1
        server.now += 1
        assert [tool.name for tool in await listed.list_tools()] == ["tool_2"]

    run(body)


def test_requests_at_once_wait_for_one_listing():
    async def body(server: _Server, listed: ListedServer) -> None:
        server.may_list.clear()
        waiting = [asyncio.create_task(listed.list_tools()) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        server.now += 10 * KEPT_S  # a listing that is not over has not expired
        waiting.append(asyncio.create_task(listed.list_tools()))
        await asyncio.sleep(0)
        server.may_list.set()
        results = await asyncio.gather(*waiting[1:])
        assert all([tool.name for tool in tools] == ["tool_1"] for tools in results)
        assert server.listings == 1

    run(body)


def test_failures_are_kept_for_a_shorter_while():
    async def body(server: _Server, listed: ListedServer) -> None:
        for _ in range(3):
            with pytest.raises(ToolError, match="away"):
                await listed.list_tools()
        assert server.listings == 1
        server.now += FAILURE_KEPT_S
        assert len(await listed.list_tools()) == 1

    run(body, failures=1)


@pytest.mark.parametrize(("code", "listings"), [(CLOSED, 2), (INVALID_ARGUMENTS, 1)])
def test_failed_call_forgets_the_list(code: int, listings: int):
    async def body(server: _Server, listed: ListedServer) -> None:
        await listed.list_tools()
        assert await listed.call("a", {}) == ToolResult("a")
        server.call_error = ToolError("gone", code)
        with pytest.raises(ToolError, match="gone"):
            await listed.call("a", {})
        await listed.list_tools()
        assert server.listings == listings

    run(body)


def test_closing_ends_a_listing():
    async def body(server: _Server, listed: ListedServer) -> None:
        server.may_list.clear()
        waiting = asyncio.create_task(listed.list_tools())
        await asyncio.sleep(0)
        await listed.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(body)
