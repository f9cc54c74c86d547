"""A process's part in answering batches: it takes one after the other, and removes what expired."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time

from pagemill.server.batches.queue import Held
from pagemill.server.batches.run import BatchRun, BatchWork
from pagemill.server.errors import ApiError

_LOGGER = logging.getLogger("pagemill.server")
_LOOK_S = 1.0  # how often an idle process looks for a batch
_AFTER_FAILURE_S = 30.0
_CLEAN_S = 600.0


class BatchWorker:
    """Begins with `start`. At a drain `stop` lets the requests that run end; `close` drops them."""

    def __init__(self, work: BatchWork) -> None:
        self._work = work
        self._store = work.server.batch_store
        self._holder = secrets.token_hex(8)
        self._stopped = asyncio.Event()
        self._run: BatchRun | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The model is loaded."""
        self._task = asyncio.create_task(self._take_batches())

    def stop(self) -> None:
        """Takes no more batches and sends no more requests."""
        self._stopped.set()
        if self._run is not None:
            self._run.stop()

    async def close(self) -> None:
        """Ends; the batch that was worked on can be claimed by another process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _take_batches(self) -> None:
        clean_at = time.monotonic()
        while not self._stopped.is_set():
            pause_s = _LOOK_S
            try:
                if time.monotonic() >= clean_at:
                    clean_at = time.monotonic() + _CLEAN_S
                    await self._store.files.delete_expired()
                    await self._store.queue.delete_expired()
                held = await self._store.queue.claim(self._holder)
                if held is not None:
                    await self._answer(held)
                    continue
            except ApiError:  # logged where it was raised
                pause_s = _AFTER_FAILURE_S
            except Exception:
                _LOGGER.exception("the work on batches failed; it continues in %g s", pause_s)
                pause_s = _AFTER_FAILURE_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause_s)

    async def _answer(self, held: Held) -> None:
        lifecycle = self._work.server.lifecycle
        try:
            lifecycle.enter()  # a drain waits for the requests
        except ApiError:
            await self._store.queue.release(held)
            raise
        try:
            self._run = BatchRun(self._work, held)
            if self._stopped.is_set():
                self._run.stop()
            await self._run.run()
        finally:
            self._run = None
            lifecycle.leave()
