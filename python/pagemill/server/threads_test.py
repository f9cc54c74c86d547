"""Tests of pagemill.server.threads."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from pagemill.render.stop import Stop
from pagemill.server.threads import Threads


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


async def _begun(threads: Threads, release: threading.Event) -> asyncio.Task[bool]:
    """Work that a thread has begun, and that lasts until `release`."""
    has_begun = threading.Event()

    def work() -> bool:
        has_begun.set()
        return release.wait(60)

    task = asyncio.create_task(threads.run("", work))
    while not has_begun.is_set():
        await asyncio.sleep(0.001)
    return task


def _run(test: Callable[[Threads, threading.Event], Awaitable[None]]) -> None:
    """Runs `test` with one thread, and what its work waits for."""
    release = threading.Event()
    try:
        asyncio.run(asyncio.wait_for(test(Threads(1, "test"), release), 60))
    finally:
        release.set()


def test_results_and_failures() -> None:
    async def body(threads: Threads, _: threading.Event) -> None:
        assert await threads.run("", max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await threads.run("", divmod, 1, 0)
        assert await threads.run("", max, 3, 2) == 3

    _run(body)


def test_work_that_has_begun_is_waited_for() -> None:
    async def body(threads: Threads, release: threading.Event) -> None:
        begun = await _begun(threads, release)
        for _ in range(2):
            begun.cancel()
            await _settle()
            assert not begun.done()
        after = asyncio.create_task(threads.run("", max, 1, 2))
        await _settle()
        assert not after.done(), "the thread is in use"
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert await after == 2

    _run(body)


def test_work_that_has_not_begun_never_does() -> None:
    async def body(threads: Threads, release: threading.Event) -> None:
        first = await _begun(threads, release)
        ran: list[int] = []
        waiting = asyncio.create_task(threads.run("", ran.append, 1))
        await _settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        assert await first
        await threads.run("", ran.append, 2)
        assert ran == [2]

    _run(body)


def test_cancelled_work_is_asked_to_stop() -> None:
    async def body(threads: Threads, _: threading.Event) -> None:
        stop, has_begun = Stop(), threading.Event()

        def work() -> None:
            has_begun.set()
            while not stop.is_set():
                time.sleep(0.001)

        task = asyncio.create_task(threads.run_with(stop, "", work))
        while not has_begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    _run(body)


def test_a_thread_is_left_for_another_tenant() -> None:
    async def body(threads: Threads, release: threading.Event) -> None:
        first = await _begun(threads, release)
        more = [asyncio.create_task(threads.run("", release.wait, 60)) for _ in range(3)]
        assert await threads.run("another", max, 1, 2) == 2
        assert not first.done() and not any(task.done() for task in more)
        release.set()
        await asyncio.gather(first, *more)

    _run(body)
