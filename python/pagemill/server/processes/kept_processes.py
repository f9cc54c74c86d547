"""Processes that are started again when they end, until all are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable

from pagemill.server.processes.child_process import ask_to_stop

_LOGGER = logging.getLogger("pagemill.server")
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0
_STABLE_AFTER_S = 60.0
STOP_GRACE_S = 10.0
"""For processes to end that have nothing left to do."""
Start = Callable[[], Awaitable[Process]]
Watch = Callable[[Process], Awaitable[None]]


class EndedError(Exception):
    """The server has to end; `status` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class KeptProcesses:
    """Processes by their names, whose first word is their kind: "engine 0", "api 1"."""

    def __init__(self, on_restart: Callable[[str], None]) -> None:
        """`on_restart` is called with the kind of a process that is started again."""
        self.by_name: dict[str, Process] = {}
        self.stop = asyncio.Event()
        """Once set, processes that end stay away."""
        self._on_restart = on_restart

    async def keep(self, name: str, start: Start, watch: Watch | None = None) -> None:
        """Starts the process again whenever it ends, later and later if it ends soon.

        Raises:
            EndedError: `watch` raises it.
        """
        delay_s = _FIRST_DELAY_S
        while True:
            started = time.monotonic()
            process = self.by_name[name] = await start()
            if watch is not None:
                await watch(process)
            status = await process.wait()
            if self.stop.is_set():
                return
            if time.monotonic() - started > _STABLE_AFTER_S:
                delay_s = _FIRST_DELAY_S
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            _LOGGER.error(
                "%s (process %d) %s; it is started again in %.1f s", name, process.pid, how, delay_s
            )
            self._on_restart(name.partition(" ")[0])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), delay_s)
                return
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    def names(self, kind: str) -> list[str]:
        """The processes of a kind."""
        return [name for name in self.by_name if name.startswith(kind)]

    def ask(self, kind: str) -> None:
        """Lets the processes of a kind end when they have done what they do."""
        for name in self.names(kind):
            ask_to_stop(self.by_name[name])

    async def ask_to_end(self, kind: str, timeout_s: float) -> None:
        """`ask`, and waits until they have ended, at most `timeout_s`."""
        self.ask(kind)
        waiting = [asyncio.create_task(self.by_name[name].wait()) for name in self.names(kind)]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    async def kill(self) -> None:
        """Ends all at once."""
        for process in self.by_name.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
