"""The servers of tools that an operator names, and how many responses use them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pagemill.config import ConfigError
from pagemill.server.errors import ApiError
from pagemill.server.tools.listed import ListedServer
from pagemill.server.tools.server_file import read_server_file
from pagemill.server.tools.tool import ToolServer

_MAX_RESPONSES = 256  # of one process: what waits for a tool is in no queue of the engine


class ToolServers:
    """Those of one process."""

    def __init__(self, servers: Sequence[ToolServer] = ()) -> None:
        self.by_label: Mapping[str, ToolServer] = {server.label: server for server in servers}
        self._num_responses = 0

    def enter(self) -> None:
        """A response begins that may call tools.

        Raises:
            ApiError: 429: too many do; nothing was counted then.
        """
        if self._num_responses >= _MAX_RESPONSES:
            raise ApiError(
                429, f"{_MAX_RESPONSES} responses with tools of this server run; try again later."
            )
        self._num_responses += 1

    def leave(self) -> None:
        """A response that entered is over."""
        self._num_responses -= 1

    async def close(self) -> None:
        """Ends what runs for the servers."""
        await asyncio.gather(*(server.close() for server in self.by_label.values()))


def open_servers(path: str | None) -> ToolServers:
    """The servers that the file of `--mcp-servers` names; None: there are none. They connect when
    they are used.

    Raises:
        ConfigError: the file cannot be used, or the package `mcp` is missing.
    """
    if path is None:
        return ToolServers()
    specs = read_server_file(path)
    try:
        from pagemill.server.tools.mcp_server import McpServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--mcp-servers needs the package {error.name}: pip install 'pagemill[mcp]'"
        ) from None
    return ToolServers([ListedServer(McpServer(spec)) for spec in specs])
