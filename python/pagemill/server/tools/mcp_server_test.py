"""Tools of real MCP servers: on pipes, over HTTP, and servers that hang, die, flood and lie."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import openai
import pytest
import uvicorn

from pagemill.render.formats.json_formats import HERMES
from pagemill.render.output_machine import Formats
from pagemill.server.testing import mcp_tools
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_server import fake_server, turns
from pagemill.server.testing.fake_tools import written_call as call
from pagemill.server.tools import mcp_server
from pagemill.server.tools.mcp_server import McpServer
from pagemill.server.tools.server_file import ServerSpec
from pagemill.server.tools.tool import TIMED_OUT, ToolError

NAMES = ["get_weather", "fail", "hang", "die", "large", "pick", "secret"]
OSLO = {"city": "Oslo"}


@contextlib.contextmanager
def listening(app: Any, port: int = 0) -> Iterator[str]:
    """The URL at which `app` is served, in a thread."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(name="url", scope="module")
def _url() -> Iterator[str]:
    with listening(mcp_tools.tools().streamable_http_app()) as url:
        yield url


def on_pipes(mode: str = "", **more: Any) -> ServerSpec:
    command = [sys.executable, "-P", mcp_tools.__file__, *filter(None, [mode])]
    return ServerSpec(label="weather", command=command, **more)


def at_url(url: str, **more: Any) -> ServerSpec:
    return ServerSpec(label="weather", url=url, **more)


@pytest.fixture(name="spec", params=["pipes", "http"])
def _spec(request: pytest.FixtureRequest, url: str) -> ServerSpec:
    return at_url(url) if request.param == "http" else on_pipes()


def run(spec: ServerSpec, test: Callable[[McpServer], Awaitable[None]]) -> None:
    async def body() -> None:
        server = McpServer(spec)
        try:
            await test(server)
        finally:
            await server.close()

    asyncio.run(body())


async def limit(server: McpServer, timeout_s: float) -> None:
    """Its calls take at most so long; it has begun before, which takes longer on a busy machine."""
    await server.list_tools()
    spec = server._spec  # pyright: ignore[reportPrivateUsage]
    server._spec = msgspec.structs.replace(spec, timeout=timeout_s)  # pyright: ignore


async def failure(work: Awaitable[Any]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await work
    return caught.value


def test_listing_and_calling(spec: ServerSpec) -> None:
    async def body(server: McpServer) -> None:
        listed = await server.list_tools()
        assert [tool.name for tool in listed] == NAMES
        assert listed[0].description == "The weather of a city."
        assert listed[0].parameters["required"] == ["city"]
        names = ["Oslo", "Rome", "Bonn"]
        calls = (server.call("get_weather", {"city": name}) for name in names)
        results = await asyncio.gather(*calls)
        assert [result.text for result in results] == [f"{name}: rain" for name in names]
        failed = await server.call("fail", OSLO)
        assert failed.is_error and "Error executing tool fail" in failed.text

    run(spec, body)


def test_the_operator_chooses_tools(spec: ServerSpec) -> None:
    async def body(server: McpServer) -> None:
        assert [tool.name for tool in await server.list_tools()] == ["hang"]

    run(msgspec.structs.replace(spec, allowed_tools=["hang", "absent"]), body)


def test_secrets_come_from_files(url: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("s3cret\n")

    async def body(server: McpServer) -> None:
        assert (await server.call("secret", {})).text == "s3cret"

    run(at_url(url, header_files={"X-Secret": str(path)}), body)
    shell = ["/bin/sh", "-c", 'exec "$@" answers "$SECRET"', "sh"]
    command = [*shell, *(on_pipes().command or ())]
    env_files = {"SECRET": str(path)}
    run(ServerSpec(label="weather", command=command, env_files=env_files), body)


def test_a_call_that_hangs_leaves_the_others(url: str) -> None:
    async def body(server: McpServer) -> None:
        await limit(server, 5.0)
        hanging = asyncio.create_task(failure(server.call("hang", OSLO)))
        await asyncio.sleep(0)
        assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"
        error = await hanging
        assert error.code == TIMED_OUT and "within 5 s" in error.message
        assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"

    run(at_url(url, timeout=60.0), body)


def test_a_cancelled_call_leaves_the_others(spec: ServerSpec) -> None:
    async def body(server: McpServer) -> None:
        await server.list_tools()
        hanging = asyncio.create_task(server.call("hang", OSLO))
        await asyncio.sleep(0.1)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"

    run(spec, body)


def test_a_process_that_dies_is_started_again() -> None:
    async def body(server: McpServer) -> None:
        for _ in range(2):
            await failure(server.call("die", OSLO))
            assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"

    run(on_pipes(), body)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_server_that_was_started_again(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows nothing of the sessions that it had. Clients of older servers have such."""
    monkeypatch.setattr(mcp_server, "_MODE", mode)

    async def body() -> None:
        with listening(mcp_tools.tools().streamable_http_app()) as url:
            server = McpServer(at_url(url))
            assert len(await server.list_tools()) == len(NAMES)
        port = urlsplit(url).port or 0
        with listening(mcp_tools.tools().streamable_http_app(), port):
            assert len(await server.list_tools()) == len(NAMES)
            assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"
            await server.close()

    asyncio.run(body())


def test_a_result_that_is_too_large(spec: ServerSpec) -> None:
    async def body(server: McpServer) -> None:
        assert len((await server.call("large", {"num_bytes": 65536})).text) == 65536
        error = await failure(server.call("large", {"num_bytes": 65537}))
        assert "65537 bytes" in error.message
        await failure(server.call("large", {"num_bytes": 3_000_000}))
        assert (await server.call("get_weather", OSLO)).text == "Oslo: rain"

    run(spec, body)


@pytest.mark.parametrize("mode", ["flood", "garbage", "silent"])
def test_processes_that_do_not_speak_the_protocol(mode: str) -> None:
    async def body(server: McpServer) -> None:
        for _ in range(2):
            await failure(server.list_tools())

    run(msgspec.structs.replace(on_pipes(mode), timeout=1.0), body)


def test_ten_thousand_tools() -> None:
    async def one(server: McpServer) -> None:
        assert [tool.name for tool in await server.list_tools()] == ["t7"]

    async def body(server: McpServer) -> None:
        error = await failure(server.list_tools())
        assert "more than 128 tools" in error.message

    run(on_pipes("many"), body)
    run(on_pipes("many", allowed_tools=["t7"]), one)


@pytest.mark.parametrize("command", ["/does/not/exist", "/bin/false", "/bin/cat"])
def test_commands_that_are_no_servers(command: str) -> None:
    async def body(server: McpServer) -> None:
        error = await failure(server.list_tools())
        assert command not in error.message  # clients do not learn what runs

    run(ServerSpec(label="weather", command=[command], timeout=3.0), body)


def test_addresses_without_a_server() -> None:
    async def body(server: McpServer) -> None:
        error = await failure(server.list_tools())
        assert "127.0.0.1" not in error.message

    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        port = silent.getsockname()[1]
        run(at_url(f"http://127.0.0.1:{port}/mcp", timeout=1.0), body)
    run(at_url(f"http://127.0.0.1:{port}/mcp", timeout=3.0), body)


BODIES: list[tuple[int, dict[str, str], bytes]] = [
    (200, {"content-type": "application/json"}, b"{" + b" " * 4_000_000),
    (200, {"content-type": "application/json", "content-encoding": "gzip"}, b"\x1f\x8b"),
    (200, {"content-type": "text/event-stream"}, b"data: " + b"x" * 4_000_000),
    (200, {"content-type": "text/html"}, b"<html>"),
    (500, {}, b"x" * 4_000_000),
    (302, {"location": "http://127.0.0.1:1/mcp"}, b""),
]


@pytest.mark.parametrize("answer", BODIES, ids=lambda each: f"{each[0]}-{list(each[1].values())}")
def test_answers_that_are_none(answer: tuple[int, dict[str, str], bytes]) -> None:
    status, headers, content = answer

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content})

    async def body(server: McpServer) -> None:
        await failure(server.list_tools())

    with listening(app) as url:
        run(at_url(url, timeout=3.0), body)


@pytest.mark.parametrize("transport", ["pipes", "http"])
def test_responses_with_real_tools(transport: str, url: str) -> None:
    """OpenAI's client, the server and an MCP server; the model is scripted."""
    outputs = [
        f"{call('Oslo')}\n{call('Oslo', 'weather__hang')}\n{call('Oslo', 'weather__fail')}",
        "It rains.",
    ]
    spec = on_pipes(timeout=60.0) if transport == "pipes" else at_url(url, timeout=60.0)

    async def body() -> None:
        tools = McpServer(spec)
        await limit(tools, 5.0)
        async with fake_server(
            turns(*outputs),
            renderer=FakeRenderer(Formats(None, HERMES)),
            max_model_len=8192,
            tools=[tools],
        ) as server:
            client = openai.AsyncOpenAI(
                api_key="none", base_url="http://fake/v1", http_client=server.client
            )
            tool: Any = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
            response = await client.responses.create(model="fake", input="Rain?", tools=[tool])
            listed, made, hung, failed, answer = (item.to_dict() for item in response.output)
            assert [each["name"] for each in listed["tools"]] == NAMES
            assert (made["status"], made["output"]) == ("completed", "Oslo: rain")
            assert (hung["status"], hung["error"]["code"]) == ("failed", TIMED_OUT)
            assert "tool fail" in failed["error"]["content"][0]["text"]
            assert answer["type"] == "message" and response.output_text == "It rains."

    asyncio.run(body())
