"""Tools of MCP servers, called by a live server of two processes for OpenAI's client."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pagemill.server.testing import mcp_tools

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)
TOOL: dict[str, Any] = {
    "type": "mcp",
    "server_label": "weather",
    "require_approval": "never",
    "allowed_tools": ["pick"],
}
GONE: dict[str, Any] = {**TOOL, "server_label": "gone", "allowed_tools": None}
REQUEST: dict[str, Any] = {
    "model": NAME,
    "input": "Which city?",
    "tools": [TOOL, GONE],
    # The model has to call: a small one would rather talk.
    "tool_choice": {"type": "mcp", "server_label": "weather", "name": "pick"},
    "max_tool_calls": 1,  # and, once it has begun, would call for ever
    "max_output_tokens": 60,
    "temperature": 0,
}


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    servers = folder / "servers.yaml"
    command = [sys.executable, "-P", mcp_tools.__file__]
    gone = {"url": "http://127.0.0.1:9/mcp", "timeout": 5}
    servers.write_text(json.dumps({"weather": {"command": command}, "gone": gone}))
    options = (
        *("--mcp-servers", str(servers), "--tool-call-parser", "hermes"),
        *("--api-server-count", "2", "--max-model-len", "2048"),
    )
    with serve(SMOLLM2, folder, options) as running:
        yield running


def client_of(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


def check(response: Any) -> None:
    listed, gone, made, answer = response.output
    assert [tool.name for tool in listed.tools] == ["pick"]
    assert gone.type == "mcp_list_tools" and gone.error
    city = json.loads(made.arguments)["city"]
    assert (made.type, made.status, made.output) == ("mcp_call", "completed", f"{city} it is.")
    assert answer.type == "message"
    assert response.status in ("completed", "incomplete")
    assert response.usage.output_tokens > 0


def test_a_call_and_what_follows(server: ServerProcess) -> None:
    response = client_of(server).responses.create(**REQUEST)
    check(response)
    with client_of(server).responses.create(**REQUEST, stream=True) as stream:
        events = list(stream)
    check(events[-1].response)
    assert "response.mcp_call.completed" in [event.type for event in events]


def test_in_the_background_with_a_stream(server: ServerProcess) -> None:
    """Any process can read the events of a response that another one generates."""
    with client_of(server).responses.create(**REQUEST, background=True, stream=True) as stream:
        events = list(stream)
    check(events[-1].response)
    for _ in range(4):
        name = events[0].response.id
        resumed = client_of(server).responses.retrieve(name, stream=True, starting_after=4)
        assert list(resumed) == events[5:]


def test_the_server_counts_calls(server: ServerProcess) -> None:
    client_of(server).responses.create(**REQUEST)
    assert server.metric("tool_calls_total", server="weather", outcome="completed") >= 1
