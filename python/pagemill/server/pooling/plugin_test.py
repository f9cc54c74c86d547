"""`/pooling` with `data`: an example of a plugin, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagemill.config import ConfigError
from pagemill.engine.testing.fake_model import FakeOptions, pooled_row
from pagemill.inputs.io_processor import GROUP, find_io_processor, open_io_processor
from pagemill.inputs.task import Pooled, Task
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.errors import ApiError
from pagemill.server.pooling import plugin as plugins
from pagemill.server.pooling.plugin import DataPlugin
from pagemill.server.testing.fake_server import FakeServer, fake_server

SIZE = 5
POOLED = Pooled(task=Task.EMBED, width=SIZE)
OPTIONS = FakeOptions(pooled_size=SIZE, task=Task.EMBED)


class Sentences:
    """The most alike of the sentences of a text: `{"text": ..., "query": ...}`."""

    def __init__(self, pooled: Pooled) -> None:
        self.width = pooled.width

    def parse_data(self, data: Any) -> list[str]:
        """The query and the sentences."""
        if not isinstance(data, dict) or not {"text", "query"} <= data.keys():
            raise ValueError("it needs `text` and `query`")
        return [data["query"], *filter(None, data["text"].split("."))]

    def pre_process(self, parsed: list[str], request_id: str) -> Sequence[str | list[int]]:
        """All of them."""
        return parsed

    def post_process(self, parsed: list[str], rows: Sequence[np.ndarray], request_id: str) -> Any:
        """The sentence, and how many there were."""
        query, *others = rows
        assert query.shape == (self.width,)
        best = int(np.argmax([query @ row for row in others]))
        return {"best": parsed[1 + best], "of": len(others)}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"sentences": f"{__name__}:Sentences", "gone": "no_such_package:Plugin"}
    found = [importlib.metadata.EntryPoint(n, value, GROUP) for n, value in entries.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)


def opened() -> DataPlugin:
    """The example, as it is installed."""
    processor = open_io_processor("sentences", POOLED)
    assert processor is not None
    return DataPlugin(processor)


def run(body: Callable[[FakeServer], Awaitable[None]], plugin: DataPlugin | None) -> None:
    async def main() -> None:
        async with fake_server(OPTIONS) as server:
            pipeline = server.state.models.resolve(None, ANONYMOUS).model
            pipeline.model = replace(pipeline.model, pooled=POOLED)
            pipeline.plugin = plugin
            await body(server)

    asyncio.run(main())


async def post(server: FakeServer, status: int, **fields: Any) -> Any:
    response = await server.client.post("/pooling", json=fields)
    assert response.status_code == status, response.text
    return response.json()


def test_a_plugin_answers():
    sentences = ["one", "two", "three"]
    query, *rows = (pooled_row(OPTIONS, list(text.encode())) for text in ("o", *sentences))
    best = sentences[int(np.argmax([query @ row for row in rows]))]

    async def body(server: FakeServer) -> None:
        data = {"text": "one.two.three.", "query": "o"}
        answer = await post(server, 200, data=data, request_id="7", task="plugin")
        assert answer["data"] == {"best": best, "of": 3}
        assert answer["request_id"] == "pool-7" and answer["created_at"] > 0
        invoked = await server.client.post("/invocations", json={"data": data})
        assert invoked.json()["data"] == answer["data"]
        # Other requests are computed as before.
        assert (await post(server, 200, input="o"))["object"] == "list"

    run(body, opened())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"data": "x"}, "it needs `text` and `query`"),
        ({"data": {"text": "a", "query": "b"}, "input": "c"}, "excludes"),
        ({"data": {"text": "a." * 2048, "query": "b"}}, "becomes 2049 prompts"),
        ({"data": {"text": "a" * 300, "query": "b"}}, "maximum context length"),
    ],
)
def test_refusals_are_of_data(fields: dict[str, Any], why: str):
    async def body(server: FakeServer) -> None:
        error = (await post(server, 400, **fields))["error"]
        assert why in error["message"] and error["param"] == "data"

    run(body, opened())


def test_a_server_without_a_plugin():
    async def body(server: FakeServer) -> None:
        error = (await post(server, 400, data={}))["error"]
        assert "--io-processor-plugin" in error["message"]

    run(body, None)


def test_errors_of_a_plugin_are_the_servers(monkeypatch: pytest.MonkeyPatch):
    async def body(server: FakeServer) -> None:
        data = {"text": "a", "query": "b"}
        for broken in ("parse_data", "post_process"):
            with monkeypatch.context() as patch:
                patch.setattr(Sentences, broken, lambda *_: 1 / 0)
                error = (await post(server, 500, data=data))["error"]
                assert "zero" not in error["message"]
        await post(server, 200, data=data)

    run(body, opened())


def test_requests_that_wait_for_a_plugin_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugins, "MAX_WAITING", 1)
    go = threading.Event()

    class Slow(Sentences):
        def parse_data(self, data: Any) -> list[str]:
            assert go.wait(60)
            return ["a"]

    async def main() -> None:
        plugin = DataPlugin(Slow(POOLED))
        for _ in range(2):  # one whose client has gone keeps its thread
            first = asyncio.create_task(plugin.read({}, ""))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(ApiError) as error:
                await plugin.read({}, "")
            assert error.value.status == 429
            go.set()
            for _ in range(2000):
                if plugin._num_waiting == 0:
                    break
                await asyncio.sleep(0.001)
            assert await plugin.read({}, "") == (["a"], ["a"])
            go.clear()

    asyncio.run(main())


def test_plugins_that_cannot_be_loaded():
    find_io_processor("sentences")
    assert open_io_processor(None, None) is None
    with pytest.raises(ConfigError, match="there are: gone, sentences"):
        find_io_processor("sentence")
    with pytest.raises(ConfigError, match="the plugin gone .*ModuleNotFoundError"):
        find_io_processor("gone")
    with pytest.raises(ConfigError, match="for models that pool"):
        open_io_processor("sentences", None)
