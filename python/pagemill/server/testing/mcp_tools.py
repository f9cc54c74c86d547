"""An MCP server with tools that work, and tools that do not.

    python mcp_tools.py [MODE [SECRET]]      # on its pipes

MODE "many" lists 10,000 tools, "flood" writes a line without an end, "garbage" writes no JSON, and
"silent" answers nothing. It imports nothing of the project: it runs as its own process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Literal

import anyio
from mcp.server.mcpserver import Context, MCPServer


def tools(argument: str = "") -> MCPServer[Any]:
    """The server; `argument` is its secret."""
    server: MCPServer[Any] = MCPServer("weather", log_level="CRITICAL")

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"{city}: rain"

    def fail(city: str) -> str:
        raise ValueError(f"{city} has no weather")

    async def hang(city: str) -> str:
        await anyio.sleep_forever()
        return city

    def die(city: str) -> str:
        os._exit(len(city))

    def large(num_bytes: int) -> str:
        return "x" * num_bytes

    def pick(city: Literal["Oslo", "Rome"]) -> str:
        return f"{city} it is."

    def secret(context: Context[Any, Any]) -> str:
        """What the client was given to show."""
        return (context.headers or {}).get("x-secret", argument)

    for each in (get_weather, fail, hang, die, large, pick, secret):
        server.add_tool(each, structured_output=False)
    return server


def list_many() -> None:
    """Lists 10,000 tools, as fast as can be."""
    listed = [{"name": f"t{at}", "inputSchema": {"type": "object"}} for at in range(10_000)]
    begun: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
    begun["serverInfo"] = {"name": "many", "version": "1"}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
        if request["method"] == "initialize":
            answer["result"] = begun
        elif request["method"] == "tools/list":
            answer["result"] = {"tools": listed}
        else:
            answer["error"] = {"code": -32601, "message": "There is no such method."}
        if "id" in request:
            print(json.dumps(answer), flush=True)


def main(mode: str = "", secret: str = "") -> None:
    """Serves on the process's pipes."""
    if mode == "silent":
        time.sleep(3600)
    if mode == "garbage":
        print("This is no JSON.", flush=True)
        time.sleep(3600)
    while mode == "flood":
        sys.stdout.write("x" * 2**16)
    if mode == "many":
        list_many()
    else:
        tools(secret).run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
