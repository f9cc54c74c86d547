"""A key file that changes while the server runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from pagemill.config import ServerConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.access.keys import ApiKey, plain_keys
from pagemill.server.testing.fake_server import FakeServer, fake_server

BODY = {"prompt": "abcd", "max_tokens": 100, "ignore_eos": True}


class Served:
    """A server whose keys are in `path`."""

    def __init__(self, path: Path, fake: FakeServer) -> None:
        self._path = path
        self.fake = fake

    def write(self, content: str) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(content)
        new.chmod(0o600)
        os.replace(new, self._path)

    async def status(self, key: str) -> int:
        headers = {"X-API-Key": key}
        return (await self.fake.client.get("/v1/models", headers=headers)).status_code


@contextlib.asynccontextmanager
async def served(path: Path, content: str) -> AsyncGenerator[Served]:
    path.write_text(content)
    path.chmod(0o600)
    key_file = KeyFile(ServerConfig(api_key=("flag",), api_key_file=str(path)))
    ring = KeyRing(key_file.keys)
    async with fake_server(FakeOptions(step_s=0.002), ring=ring) as fake:
        following = asyncio.create_task(key_file.follow(ring.replace, poll_s=0.005))
        yield Served(path, fake)
        following.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def test_keys_are_replaced_and_requests_in_flight_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path / "keys.yaml", "old: {key: k1}") as server:
            assert [await server.status(key) for key in ("k1", "k2", "flag")] == [200, 401, 200]
            client, headers = server.fake.client, {"X-API-Key": "k1"}
            running = asyncio.create_task(
                client.post("/v1/completions", json=BODY, headers=headers)
            )
            server.write("new: {key: k2, requests_per_minute: 1}")
            async with asyncio.timeout(60):
                while await server.status("k2") != 200:
                    await asyncio.sleep(0.005)
            assert [await server.status(key) for key in ("k1", "flag")] == [401, 200]
            assert (await running).status_code == 200
            headers = {"X-API-Key": "k2"}
            answers = [
                await client.post("/v1/completions", json=BODY, headers=headers) for _ in range(2)
            ]
            assert [answer.status_code for answer in answers] == [200, 429]

    asyncio.run(main())


@pytest.mark.parametrize("content", ["", "a: {key: [sk-hush]}", "a: {key: *sk-hush}", "- sk-hush"])
def test_a_mistake_keeps_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    async def main() -> None:
        async with served(tmp_path / "keys.yaml", "old: {key: k1}") as server:
            server.write(content)
            await until(lambda: "stays in use" in caplog.text)
            await asyncio.sleep(0.03)
            assert await server.status("k1") == 200

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.text.count("stays in use") == 1 and "sk-hush" not in caplog.text


def test_without_a_file_nothing_is_followed() -> None:
    async def main() -> None:
        found: list[tuple[ApiKey, ...]] = []
        key_file = KeyFile(ServerConfig(api_key=("a",)))
        assert key_file.keys == plain_keys(["a"])
        following = asyncio.create_task(
            key_file.follow(lambda keys: found.append(tuple(keys)), poll_s=0.001)
        )
        await asyncio.sleep(0.02)
        following.cancel()
        assert not found

    asyncio.run(main())
