"""Processes that end are started again, until all are stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pagemill.server.processes import kept_processes
from pagemill.server.processes.kept_processes import KeptProcesses


class EndedProcess:
    """One that ended as soon as it was started."""

    pid = 1

    async def wait(self) -> int:
        return 3


def test_they_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_processes, "_FIRST_DELAY_S", 0.0)

    async def main() -> None:
        restarted: list[str] = []
        kept = KeptProcesses(restarted.append)

        async def start() -> Any:
            if len(restarted) == 3:
                kept.stop.set()
            return EndedProcess()

        await asyncio.wait_for(kept.keep("api 0", start), 60)
        assert restarted == ["api"] * 3

    asyncio.run(main())


def test_none_is_started_once_they_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one whose delay had begun."""
    monkeypatch.setattr(kept_processes, "_FIRST_DELAY_S", 3600.0)

    async def main() -> None:
        ended, starts = asyncio.Event(), list[str]()
        kept = KeptProcesses(lambda _: ended.set())

        async def start() -> Any:
            starts.append("api 0")
            return EndedProcess()

        keeping = asyncio.create_task(kept.keep("api 0", start))
        await ended.wait()
        kept.stop.set()
        await asyncio.wait_for(keeping, 60)
        assert starts == ["api 0"]

    asyncio.run(main())
