"""`--middleware`: order, streams, failures, and what cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from pagemill.config import ConfigError, ConnectionConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.middleware import add_middleware, check_middleware
from pagemill.server.records.record import RequestRecord
from pagemill.server.testing.fake_server import FakeServer, fake_server
from pagemill.server.transport.http_server import HttpServer, listen

_LAYERS = """
import asyncio

from starlette.responses import PlainTextResponse

sent = []  # bodies that passed Layer

class Layer:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def marked(message):
            async with asyncio.timeout(60):  # needs a task
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-seen", b"layer")]
                else:
                    sent.append(message.get("body", b""))
                await send(message)

        await self.app(scope, receive, marked)

async def mark(request, call_next):
    response = await call_next(request)
    response.headers.append("x-seen", "mark")
    return response

async def keys(request, call_next):
    if "refuse" in request.headers:
        return PlainTextResponse("no", 403)
    key = request.headers["cookie"].encode()
    request.scope["headers"].append((b"authorization", b"Bearer " + key))
    return await call_next(request)

async def fails(request, call_next):
    raise ValueError("of mine")

class Unmade:
    def __init__(self, app):
        raise ValueError("of mine")

    async def __call__(self, scope, receive, send):
        pass

class NeedsMore(Layer):
    def __init__(self, app, more):
        pass

class NoApp:
    pass

async def one(request):
    pass

def sync(request, call_next):
    pass
"""
_STREAMED = {"prompt": "a", "max_tokens": 40, "stream": True, "ignore_eos": True}


@pytest.fixture(name="layers")
def _layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ModuleType]:
    (tmp_path / "own_layers.py").write_text(_LAYERS)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_layers")
    for name in ("own_layers", "own_broken"):
        sys.modules.pop(name, None)


@contextlib.asynccontextmanager
async def listening(server: FakeServer) -> AsyncGenerator[int]:
    """Serves on the returned port."""
    listener = listen("127.0.0.1", 0)
    http = HttpServer(server.app, ConnectionConfig())
    serving = asyncio.create_task(http.serve([listener]))
    try:
        async with asyncio.timeout(120):
            yield listener.getsockname()[1]
    finally:
        http.should_exit = True
        async with asyncio.timeout(60):
            await serving


@pytest.mark.usefixtures("layers")
def test_the_first_is_outermost() -> None:
    async def body() -> None:
        names = ("own_layers.Layer", "own_layers.mark")
        for middleware, seen in ((names, ["mark", "layer"]), (names[::-1], ["layer", "mark"])):
            async with fake_server(middleware=middleware, api_keys=["k"]) as server:
                for path, status in (("/v1/models", 401), ("/health", 200), ("/", 200)):
                    got = await server.client.get(path)
                    assert got.status_code == status
                    assert got.headers.get_list("x-seen") == seen
                    assert len(got.headers["x-request-id"]) == 32
                foreign = {"origin": "http://elsewhere.example"}
                got = await server.client.get("/health", headers=foreign)
                assert got.status_code == 403 and "x-seen" not in got.headers

    asyncio.run(body())


@pytest.mark.usefixtures("layers")
def test_it_runs_before_keys_are_checked_and_is_recorded() -> None:
    records: list[RequestRecord] = []

    async def body() -> None:
        async with fake_server(
            middleware=["own_layers.keys"], api_keys=["k"], listeners=[records.append]
        ) as server:
            payload = {"prompt": "a", "max_tokens": 1}
            for headers, status in (({"cookie": "k"}, 200), ({"cookie": "x"}, 401)):
                got = await server.client.post("/v1/completions", json=payload, headers=headers)
                assert got.status_code == status
            got = await server.client.get("/v1/models", headers={"refuse": "", "x-request-id": "r"})
            assert (got.status_code, got.text, got.headers["x-request-id"]) == (403, "no", "r")
            assert [record.status for record in records] == [200, 401, 403]

    asyncio.run(body())


@pytest.mark.parametrize("name", ["Layer", "mark"])
def test_streams_are_not_buffered(layers: ModuleType, name: str) -> None:
    async def body() -> None:
        async with (
            fake_server(middleware=[f"own_layers.{name}"]) as server,
            listening(server) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            server.engine.most_tokens = 1
            async with client.stream("POST", "/v1/completions", json=_STREAMED) as response:
                assert response.headers["x-seen"] == name.lower()
                parts: list[bytes] = []
                live_at_first = 0
                async for part in response.aiter_raw():
                    live_at_first = live_at_first or server.async_engine.num_live
                    parts.append(part)
                    server.engine.most_tokens = len(parts) + 1  # each part needs the one before
            whole = b"".join(parts)
            assert live_at_first == 1 and len(parts) > 10
            assert whole.count(b"data: ") > 20 and whole.endswith(b"data: [DONE]\n\n")
            if name == "Layer":
                assert b"".join(layers.sent) == whole

    asyncio.run(body())


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["Layer", "mark"])
def test_a_client_that_goes_away_aborts_its_request(name: str, streamed: bool) -> None:
    async def body() -> None:
        async with (
            fake_server(FakeOptions(step_s=0.01), middleware=[f"own_layers.{name}"]) as server,
            listening(server) as port,
        ):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                payload = {**_STREAMED, "max_tokens": 200, "stream": streamed}
                request = asyncio.create_task(client.post("/v1/completions", json=payload))
                while not server.async_engine.num_live:
                    await asyncio.sleep(0.01)
                request.cancel()
            while server.async_engine.num_live or server.state.lifecycle.active:
                await asyncio.sleep(0.01)
            assert server.engine.stats().finished_abort == 1

    asyncio.run(body())


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize("name", ["Layer", "mark"])
def test_a_websocket_passes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    records: list[RequestRecord] = []

    async def body() -> None:
        path = f"own_layers.{name}"
        async with (
            fake_server(middleware=[path], listeners=[records.append]) as server,
            listening(server) as port,
        ):
            url = f"ws://127.0.0.1:{port}/v1/realtime?model=fake"
            async with connect(url, proxy=None) as connection:
                assert b"session.created" in await connection.recv(decode=False)
            while not records:
                await asyncio.sleep(0.01)

    asyncio.run(body())
    assert records[0].status == 101
    assert not [entry for entry in caplog.records if entry.levelno >= logging.ERROR]


@pytest.mark.usefixtures("layers")
def test_its_failures_are_responses(caplog: pytest.LogCaptureFixture) -> None:
    records: list[RequestRecord] = []

    async def body() -> None:
        async with fake_server(
            middleware=["own_layers.fails"], listeners=[records.append]
        ) as server:
            got = await server.client.post("/v1/completions", json={"prompt": "a"})
            assert got.status_code == records[0].status == 500
            error: dict[str, Any] = got.json()["error"]
            assert error["code"] == 500 and "mine" not in got.text

    asyncio.run(body())
    assert "ValueError: of mine" in caplog.text


@pytest.mark.usefixtures("layers")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("own_layers", "write it as module.Class or module.function"),
        ("", "write it as"),
        (".Layer", "write it as"),
        ("no_such_module.Layer", "No module named 'no_such_module'.*PYTHONPATH"),
        ("own_layers.inside.Layer", "own_layers.inside cannot be imported"),
        ("own_broken.Layer", "own_broken cannot be imported: ZeroDivisionError"),
        ("own_layers.Missing", "own_layers has no 'Missing'"),
        *((f"own_layers.{name}", "neither a class") for name in ("sync", "NoApp", "sent")),
        ("own_layers.one", r"cannot be called with \(request, call_next\)"),
        ("own_layers.NeedsMore", r"cannot be called with \(app\): missing a required argument"),
    ],
)
def test_what_cannot_be_used(path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--middleware {path}: .*{words}"):
        check_middleware([path])


@pytest.mark.usefixtures("layers")
def test_a_class_that_refuses_to_be_made() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        del scope, receive, send

    assert add_middleware(app, ()) is app
    with pytest.raises(ConfigError, match=r"--middleware own_layers.Unmade: .*of mine"):
        add_middleware(app, ["own_layers.Unmade"])
