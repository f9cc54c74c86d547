"""A model's process, as its parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Mapping
from typing import Any

import msgspec

from pagemill.model_host.reports import Failed, NeedsMemory, Ready, Report
from pagemill.server.processes.child_process import (
    ask_to_stop,
    begin,
    next_report,
    prepare_child,
    tell,
)


class LoadError(Exception):
    """The model's process cannot serve; the text says why."""


class ModelProcess:
    """A process that has been started. It ends with this one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def prepare(cls, module: str) -> ModelProcess:
        """Starts a process that imports `module` and waits for `begin`.

        Raises:
            OSError: it cannot be started.
        """
        return cls(await prepare_child(module, {}))

    @property
    def is_alive(self) -> bool:
        """False once its end is known."""
        return self._process.returncode is None

    async def begin(self, job: Mapping[str, Any]) -> None:
        """Lets it run `module.run(job)`."""
        await begin(self._process, job)

    async def next_report(self, timeout_s: float) -> NeedsMemory | Ready:
        """What it reports next.

        Raises:
            LoadError: it says that it failed, has ended, or says nothing for `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                message = await next_report(self._process)
        except TimeoutError:
            raise LoadError(f"it took longer than {timeout_s:g} s (--load-timeout)") from None
        if message is None:
            self.kill()
            raise LoadError(await self.ended())
        try:
            report = msgspec.convert(message, Report)
        except msgspec.ValidationError as error:
            raise LoadError(f"its process reports something else: {error}") from error
        if isinstance(report, Failed):
            raise LoadError(report.reason)
        return report

    def offer(self, memory_bytes: int) -> None:
        """Answers a `NeedsMemory`."""
        tell(self._process, memory_bytes)

    async def ended(self) -> str:
        """Waits for its end; how it ended."""
        while await next_report(self._process) is not None:
            pass  # what it writes has to be read
        status = await self._process.wait()
        if status < 0:
            return f"its process was killed by signal {-status}"
        return f"its process ended with status {status}; the log may say more"

    def ask_to_stop(self) -> None:
        """It ends when its requests are complete."""
        ask_to_stop(self._process)

    def kill(self) -> None:
        """Ends it at once. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Kills it, and waits for its end."""
        self.kill()
        await self._process.wait()
