"""The engines of this machine, each in a process that is started again when it ends or is stuck."""

from __future__ import annotations

import logging
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pagemill.config import ServeConfig
from pagemill.config.fields import flatten
from pagemill.config.memory import available_memory_bytes
from pagemill.server.processes.child_process import (
    next_report,
    start_child,
    wait_ready,
    wait_silent,
)
from pagemill.server.processes.kept_processes import EndedError, KeptProcesses

_LOGGER = logging.getLogger("pagemill.server")
_MODULE = "pagemill.server.processes.engine_process"


class EngineProcesses:
    """Keeps them. Jobs are those of `engine_process`."""

    def __init__(
        self,
        config: ServeConfig,
        kept: KeptProcesses,
        folder: str,
        variables: Mapping[str, str],
        on_model: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Sockets are in `folder`; `variables` are for the environment. `on_model` is called with
        the digest of the model (`model_digest`) before an engine is ready."""
        self._config = config
        self._values = flatten(config)
        self._kept = kept
        self._folder = folder
        self._variables = variables
        self._on_model = on_model
        # Engines that are started again have what others, which run by then, have left of it.
        count = max(1, len(config.server.data_parallel.local_engines))
        self._memory_bytes = available_memory_bytes() // count

    def socket(self, engine: int) -> str:
        """The path of the socket of any engine of the server."""
        return f"{self._folder}/engine-{engine}"

    async def keep(self, engine: int) -> None:
        """Runs it until `kept.stop` is set.

        Raises:
            EndedError: it cannot start.
        """
        several = self._config.server.data_parallel.data_parallel_size > 1
        name = f"engine {engine}" if several else "engine"
        was_ready = False

        async def start() -> Process:
            Path(self.socket(engine)).unlink(missing_ok=True)
            return await start_child(_MODULE, self._job(name, engine), self._variables)

        async def watch(process: Process) -> None:
            nonlocal was_ready
            if await self._begins(process):
                was_ready = True
                await self._end_if_stuck(name, process)
            elif not was_ready and not self._kept.stop.is_set():
                raise EndedError(await process.wait() or 1)

        await self._kept.keep(name, start, watch)

    async def _begins(self, process: Process) -> bool:
        model = await next_report(process)
        if model is None:
            return False
        self._on_model(model)
        return await wait_ready(process)

    async def _end_if_stuck(self, name: str, process: Process) -> None:
        after_s = self._config.server.engine_stuck_timeout
        if await wait_silent(process, after_s) and not self._kept.stop.is_set():
            _LOGGER.error(
                "%s (process %d) is stuck: no progress for %g s; it is killed",
                name,
                process.pid,
                after_s,
            )
            process.kill()

    def _job(self, name: str, engine: int) -> dict[str, Any]:
        return {
            "name": name,
            "engine": engine,
            "config": self._values,
            "socket": self.socket(engine),
            "memory_bytes": self._memory_bytes,
        }
