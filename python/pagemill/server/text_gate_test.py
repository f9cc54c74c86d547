"""Tests of pagemill.server.text_gate."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from pagemill.server.text_gate import TextGate


class _Work:
    """Runs until it is released, and counts how much runs at once."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def of(self, size: int) -> Callable[[], int]:
        """Work on `size` bytes, which returns them."""

        def run() -> int:
            with self._lock:
                self.running += size
                self.most = max(self.most, self.running)
            self.release.wait(60)
            with self._lock:
                self.running -= size
            return size

        return run


def _run(test: Callable[[TextGate, _Work], Awaitable[None]]) -> None:
    work = _Work()
    try:
        asyncio.run(asyncio.wait_for(test(TextGate(10), work), 60))
    finally:
        work.release.set()


async def _runs(work: _Work, size: int) -> None:
    """Waits until work of `size` runs, and for more that should not begin."""
    while work.running < size:
        await asyncio.sleep(0.001)
    await _settle()
    assert work.running == size


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


def test_at_most_the_capacity_at_once() -> None:
    async def body(gate: TextGate, work: _Work) -> None:
        sizes = [4, 7, 6, 3, 25, 1, 10]
        tasks = [asyncio.create_task(gate.run(size, work.of(size))) for size in sizes]
        await _runs(work, 4)  # the rest wait in turn, even what would fit
        work.release.set()
        assert await asyncio.gather(*tasks) == sizes
        assert work.most == 25  # larger than the capacity: alone

    _run(body)


def test_a_cancelled_request_leaves_the_queue() -> None:
    async def body(gate: TextGate, work: _Work) -> None:
        first = asyncio.create_task(gate.run(10, work.of(10)))
        await _runs(work, 10)
        cancelled = asyncio.create_task(gate.run(10, work.of(10)))
        await _settle()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        last = asyncio.create_task(gate.run(10, work.of(10)))
        await _settle()
        work.release.set()
        assert await asyncio.gather(first, last) == [10, 10]

    _run(body)


def test_cancelled_work_keeps_its_share_until_its_thread_ends() -> None:
    async def body(gate: TextGate, work: _Work) -> None:
        first = asyncio.create_task(gate.run(10, work.of(10)))
        await _runs(work, 10)
        first.cancel()
        waiting = asyncio.create_task(gate.run(5, work.of(5)))
        cancelled = asyncio.create_task(gate.run(10, work.of(10)))
        last = asyncio.create_task(gate.run(5, work.of(5)))
        await _settle()
        assert work.running == 10
        cancelled.cancel()
        work.release.set()
        assert await asyncio.gather(waiting, last) == [5, 5]
        assert work.most == 10

    _run(body)


def test_a_failure_frees_its_share() -> None:
    async def body(gate: TextGate, work: _Work) -> None:
        def fail() -> None:
            raise ValueError("no")

        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await gate.run(8, fail)
        work.release.set()
        assert await gate.run(8, work.of(8)) == 8

    _run(body)
