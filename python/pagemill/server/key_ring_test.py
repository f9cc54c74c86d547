"""Keys whose file changes while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from pagemill.config import ConfigError, ServerConfig
from pagemill.server.key_ring import KeyRing
from pagemill.server.keys import ApiKey, plain_keys, read_keys


def test_the_file_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("a: {key: key-of-a}\n")
    keys = read_keys(ServerConfig(api_key=("flag",), api_key_file=str(path)))
    ring = KeyRing(keys, path)

    def names() -> list[str]:
        return [key.caller.key_id for key in ring.keys]

    async def body() -> None:
        await ring.look()
        assert names() == ["key-1", "a"]
        path.write_text("a: {key: key-of-a, concurrency: 3}\nb: {key: key-of-b}\n")
        await ring.look()
        assert names() == ["key-1", "a", "b"]
        assert ring.keys[1].caller.limits.concurrency == 3
        for wrong in ("a: {key: 5", "", "b: {key: key-of-b, concurrency: many}\n"):
            caplog.clear()
            path.write_text(wrong)
            for _ in range(3):
                await ring.look()
            assert names() == ["key-1", "a", "b"]
            assert caplog.text.count("stay valid") == 1 and "key-of" not in caplog.text
        path.unlink()
        await ring.look()
        assert names() == ["key-1", "a", "b"]
        path.write_text("c: {key: key-of-c}\n")
        await ring.look()
        assert names() == ["key-1", "c"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())


def test_keys_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n")

    def check(keys: Sequence[ApiKey]) -> None:
        if len(keys) > 1:
            raise ConfigError("too many")

    ring = KeyRing(read_keys(ServerConfig(api_key_file=str(path))), path, check)
    path.write_text("one\ntwo\n")
    asyncio.run(ring.look())
    assert ring.keys == plain_keys(["one"])
