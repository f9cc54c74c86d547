"""Stored responses: whose they are, how many there are, and what happens if the file fails."""

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pagemill.config import ConfigError
from pagemill.server.responses.conversations import ConversationStore, StoredConversation
from pagemill.server.responses.store import ResponseStore, Stored
from pagemill.server.responses.store_file import StoreFile, create

MAX_BYTES = 2**20


def run(path: Path, test: Callable[[ResponseStore], Awaitable[None]]) -> None:
    async def body() -> None:
        file = StoreFile(str(path), MAX_BYTES)
        try:
            await test(ResponseStore(file))
        finally:
            await file.close()

    asyncio.run(body())


def test_a_response_is_its_owners(tmp_path: Path) -> None:
    async def body(store: ResponseStore) -> None:
        await store.put("web", "resp_1", b"[1]", b"{}")
        assert await store.get("web", "resp_1") == Stored(b"[1]", b"{}")
        assert await store.get("", "resp_1") is None
        assert not await store.delete("other", "resp_1")
        assert await store.delete("web", "resp_1")
        assert await store.get("web", "resp_1") is None
        assert not await store.delete("web", "resp_1")

    run(tmp_path / "store", body)


def test_the_oldest_are_evicted_and_the_file_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def body(store: ResponseStore) -> None:
        for number in range(200):
            text = os.urandom(1000 + 317 * number % 20_000)
            await store.put("", f"resp_{number}", text, text)
            assert path.stat().st_size <= MAX_BYTES
        found = [await store.get("", f"resp_{number}") is not None for number in range(200)]
        first = found.index(True)
        assert all(found[first:]) and 20 < 200 - first < 150

    run(path, body)


def test_what_is_too_large_evicts_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(store: ResponseStore) -> None:
        await store.put("", "small", b"[]", b"{}")
        await store.put("", "large", bytes(MAX_BYTES), b"{}")
        assert await store.get("", "small") is not None
        assert await store.get("", "large") is None

    run(tmp_path / "store", body)
    assert "large is not stored" in caplog.text and "--response-store-bytes" in caplog.text


def test_processes_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def body(store: ResponseStore) -> None:
        files = [StoreFile(str(path), MAX_BYTES) for _ in range(3)]
        others = [ResponseStore(file) for file in files]
        puts = [
            other.put("", f"resp_{number}_{index}", b"[]", b"{}")
            for number in range(20)
            for index, other in enumerate(others)
        ]
        await asyncio.gather(*puts)
        for number in range(20):
            for index in range(3):
                assert await store.get("", f"resp_{number}_{index}") is not None
        for file in files:
            await file.close()

    run(path, body)


def test_a_file_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"no database" * 1000)

    async def body(store: ResponseStore) -> None:
        with caplog.at_level(logging.ERROR):
            await store.put("", "resp_1", b"[]", b"{}")
        assert await store.get("", "resp_1") is None
        assert not await store.delete("", "resp_1")

    run(path, body)
    assert str(path) in caplog.text
    with pytest.raises(ConfigError, match="--response-store"):
        create(str(path))
    with pytest.raises(ConfigError, match="--response-store"):
        create(str(tmp_path / "absent" / "store"))


def test_a_full_disk_stores_nothing_and_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    create(str(path))
    # A file of this many pages is full before the store's own bound.
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE other (content BLOB)")
    other.execute("INSERT INTO other VALUES (zeroblob(900000))")
    other.commit()
    other.close()

    async def body(store: ResponseStore) -> None:
        await store.put("", "large", bytes(200_000), b"{}")
        assert await store.get("", "large") is None
        await store.put("", "small", b"[]", b"{}")
        assert await store.get("", "small") is not None

    run(path, body)
    assert "large is not stored" in caplog.text


def test_conversations_are_evicted_by_their_last_use(tmp_path: Path) -> None:
    path = tmp_path / "store"
    large, other = os.urandom(100_000), StoredConversation(b"{}", os.urandom(100_000))

    async def body() -> None:
        file = StoreFile(str(path), MAX_BYTES)
        responses, conversations = ResponseStore(file), ConversationStore(file)
        for name in ("old", "used"):
            assert await conversations.create("", name, other)
        for number in range(30):
            assert await responses.put("", f"resp_{number}", large, b"{}")
            assert await conversations.change("", "used", lambda stored: stored) == other
            assert path.stat().st_size <= MAX_BYTES
        assert await conversations.get("", "old") is None
        assert await conversations.get("", "used") == other
        for number in range(30):
            assert await conversations.create("", f"conv_{number}", other)
        assert await conversations.get("", "used") is None
        assert await conversations.get("", "conv_29") == other
        assert await responses.get("", "resp_29") is None
        await file.close()

    asyncio.run(body())


def test_a_conversation_that_grows_too_large_stays(tmp_path: Path) -> None:
    async def body() -> None:
        file = StoreFile(str(tmp_path / "store"), MAX_BYTES)
        store, small = ConversationStore(file), StoredConversation(b"{}", b"[]")
        assert await store.create("web", "conv", small)
        huge = os.urandom(MAX_BYTES)
        assert await store.change("web", "conv", lambda _: StoredConversation(b"", huge)) is None
        assert await store.get("web", "conv") == small
        assert await store.change("other", "conv", lambda stored: stored) is None
        assert not await store.delete("other", "conv") and await store.delete("web", "conv")
        await file.close()

    asyncio.run(body())
