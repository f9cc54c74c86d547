"""Files that change, are being written, break and vanish."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from pagemill.config import ConfigError
from pagemill.server.watched_files import WatchedFiles, follow


def test_a_change_is_reported_once_and_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("a")
    files = WatchedFiles([str(path)])
    assert [files.changed() for _ in range(2)] == [False, False]
    path.write_text("ab")
    assert not files.changed()  # it may be half written
    path.write_text("abc")
    assert [files.changed() for _ in range(3)] == [False, True, False]


def test_files_that_are_replaced_or_vanish(tmp_path: Path) -> None:
    target, link = tmp_path / "a", tmp_path / "link"
    target.write_text("a")
    link.symlink_to(target)
    files = WatchedFiles([str(link)])
    (tmp_path / "b").write_text("b")
    link.unlink()
    link.symlink_to(tmp_path / "b")
    assert [files.changed() for _ in range(3)] == [False, True, False]
    link.unlink()
    assert [files.changed() for _ in range(3)] == [False, True, False]


def test_mistakes_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    loads: list[str] = []

    async def load() -> None:
        loads.append(path.read_text())
        if loads[-1] == "bad":
            raise ConfigError("the file is bad")
        if loads[-1] == "worse":
            raise ValueError("its content")

    async def main() -> None:
        path.write_text("first")
        files = WatchedFiles([str(path)])
        following = asyncio.create_task(follow(files, load, poll_s=0.001))
        for number, content in enumerate(("bad", "worse", "good"), 1):
            path.write_text(content)
            os.utime(path, ns=(number, number))
            async with asyncio.timeout(60):
                while len(loads) < number:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
        following.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert loads == ["bad", "worse", "good"]
    assert caplog.text.count("the file is bad; what was read before stays in use") == 1
    assert "ValueError" in caplog.text and "its content" not in caplog.text
