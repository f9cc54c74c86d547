"""A process that has imported what a model's server needs, before it is known for which model."""

from __future__ import annotations

import asyncio
import contextlib

from pagemill.model_host.process import ModelProcess


class SpareProcess:
    """At most one process that waits for a model. Event loop only."""

    def __init__(self, module: str, *, is_kept: bool) -> None:
        """`module` is what models' processes run. Not `is_kept`: there never is one."""
        self._module = module
        self._is_kept = is_kept
        self._process: ModelProcess | None = None
        self._starting = asyncio.Lock()

    @property
    def _is_needed(self) -> bool:
        return self._is_kept and (self._process is None or not self._process.is_alive)

    async def take(self) -> ModelProcess:
        """The spare process if it lives, or a new one.

        Raises:
            OSError: none can be started.
        """
        spare, self._process = self._process, None
        if spare is not None and spare.is_alive:
            return spare
        return await ModelProcess.prepare(self._module)

    async def refill(self) -> None:
        """Starts a spare process unless there is one. If none can be started, `take` will say why.

        To be called when no model is being loaded: importing takes a core for a second.
        """
        async with self._starting:
            if self._is_needed:
                with contextlib.suppress(OSError):
                    self._process = await ModelProcess.prepare(self._module)

    async def close(self) -> None:
        """Ends the spare process, once it has started; there will be no other one."""
        self._is_kept = False
        async with self._starting:
            if self._process is not None:
                await self._process.close()
