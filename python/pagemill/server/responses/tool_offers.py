"""Which tools of the operator's servers a request lets the model call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pagemill.server.access.caller import Caller, Scope
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.responses.input import Item
from pagemill.server.tools.offer import ALL, NO_TOOL, SEPARATOR, Offer, ToolFilter
from pagemill.server.tools.tool import ToolServer

_OPERATORS = ("server_url", "connector_id", "tunnel_id", "authorization", "headers")
"""What clients of OpenAI's API say themselves, and the operator says here."""


def is_offer(tool: Mapping[str, Any]) -> bool:
    """Whether a tool of a request is a server of tools, not a function of the client."""
    return tool.get("type") == "mcp"


def offers_of(
    tools: Sequence[Mapping[str, Any]],
    servers: Mapping[str, ToolServer],
    items: Sequence[Item],
    caller: Caller,
) -> list[Offer]:
    """The servers among `tools`, which a request has for the conversation `items`.

    Raises:
        ApiError: 400 naming what is wrong; 403: `caller` may not use tools of the server.
    """
    listed = {item["server_label"] for item in items if item["type"] == "mcp_list_tools"}
    offers: dict[str, Offer] = {}
    for at, tool in enumerate(tools):
        if not is_offer(tool):
            continue
        caller.require(Scope.TOOLS, "a tool that the server runs")
        offer = _offer(tool, f"tools[{at}]", servers, listed)
        if offer.server.label in offers:
            raise bad_request(f"`tools` has {offer.server.label!r} twice.", "tools")
        offers[offer.server.label] = offer
    for tool in tools:
        label, separator, _ = str(tool.get("name")).partition(SEPARATOR)
        if separator and label in offers:
            raise bad_request(
                f"`tools` has a function whose name begins with `{label}{SEPARATOR}`, as those of"
                " the MCP server do; give it another name.",
                "tools",
            )
    return list(offers.values())


def _offer(
    tool: Mapping[str, Any], where: str, servers: Mapping[str, ToolServer], listed: set[str]
) -> Offer:
    for field in _OPERATORS:
        if tool.get(field) is not None:
            raise bad_request(
                f"`{where}.{field}` is not supported: the operator of this server names the MCP"
                " servers (--mcp-servers), and `server_label` chooses one of them.",
                "tools",
            )
    label = tool.get("server_label")
    server = servers.get(label) if isinstance(label, str) else None
    if server is None:
        known = ", ".join(servers) or "none (--mcp-servers)"
        raise bad_request(
            f"`{where}.server_label` is {str(label)[:64]!r}; the MCP servers here are: {known}.",
            "tools",
        )
    allowed = _filter(tool.get("allowed_tools"), f"{where}.allowed_tools")
    free = _free(tool.get("require_approval"), f"{where}.require_approval")
    return Offer(server, allowed or ALL, free, is_new=server.label not in listed)


def _free(approval: Any, where: str) -> ToolFilter:
    """The tools whose calls need no approval. As in OpenAI's API, those of which nothing is said
    need it."""
    match approval:
        case None | "always":
            return NO_TOOL
        case "never":
            return ALL
        case {"never": free} if cast(dict[str, Any], approval).get("always") is None:
            return _filter(free, f"{where}.never") or NO_TOOL
        case _:
            raise bad_request(
                f"`{where}` must be `always`, `never`, or an object whose `never` says which tools"
                " need no approval.",
                "tools",
            )


def _filter(fields: Any, where: str) -> ToolFilter | None:
    if fields is None:
        return None
    named = {"tool_names": cast(Any, fields)} if isinstance(fields, list) else fields
    if not isinstance(named, dict):
        raise _no_filter(where)
    given = cast(dict[str, Any], named)
    names, read_only = given.get("tool_names"), given.get("read_only")
    if not (isinstance(names, list | None) and isinstance(read_only, bool | None)):
        raise _no_filter(where)
    if names is not None and not all(isinstance(name, str) for name in cast(list[Any], names)):
        raise _no_filter(where)
    return ToolFilter(None if names is None else frozenset(cast(list[str], names)), read_only)


def _no_filter(where: str) -> ApiError:
    return bad_request(
        f"`{where}` must be a list of names, or an object with `tool_names` or `read_only`.",
        "tools",
    )
