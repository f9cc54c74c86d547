"""`--root-path`: requests with it and without it are served alike, and need the same key."""

from __future__ import annotations

import asyncio

import pytest

from pagemill.config import ConfigError, ServerConfig
from pagemill.server.testing.fake_server import fake_server

KEY = {"authorization": "Bearer k"}


def test_paths() -> None:
    async def body() -> None:
        async with fake_server(api_keys=["k"], root_path="/a/llm") as server:
            get = server.client.get
            for path in ("/v1/models", "/a/llm/v1/models"):
                assert (await get(path)).status_code == 401
                assert (await get(path, headers=KEY)).status_code == 200
            for path in ("/a/llm/health", "/health", "/a/llm/"):
                assert (await get(path)).status_code == 200
            for path in ("/a/llmx/v1/models", "/a/llm/a/llm/v1/models", "/a/v1/models"):
                assert (await get(path, headers=KEY)).status_code == 404
            document = (await get("/a/llm/openapi.json", headers=KEY)).json()
            assert document["servers"] == [{"url": "/a/llm"}]

    asyncio.run(body())


@pytest.mark.parametrize("path", ["llm", "/llm/", "/", "/a//b", "/a?b", "/a b"])
def test_what_is_not_a_path(path: str) -> None:
    with pytest.raises(ConfigError, match="--root-path"):
        ServerConfig(root_path=path)
