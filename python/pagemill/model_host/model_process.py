"""The process of a model: `pagemill serve` on a Unix socket, in memory that the parent offers."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, MachineShare, ServeConfig
from pagemill.config.fields import build
from pagemill.config.memory import NoRoomError
from pagemill.engine.loading import LoadedModel
from pagemill.engine.model_plan import model_path
from pagemill.engine.outputs import EngineError
from pagemill.model_host.reports import Failed, NeedsMemory, Ready, Report
from pagemill.server import serve
from pagemill.server.access.caller import OPERATOR
from pagemill.server.endpoints.models import list_models
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.processes.child_process import follow_parent, report
from pagemill.server.processes.engine_source import load_in_thread
from pagemill.server.state import ServerState

# A spare process has imported what servers import when they start.
for _module in ("pagemill.engine.local_client", "pagemill.server.http_process"):
    importlib.import_module(_module)
for _row in ENDPOINTS:
    _row.load()


def run(job: Mapping[str, Any]) -> int:
    """Serves until the parent stops it; returns the exit status of `pagemill serve`."""
    process = _Process()
    around = serve.Surroundings(job["name"], process.attend, process.load, process.became_ready)
    try:
        return serve.run(build(ServeConfig, job["config"]), around)
    except ConfigError as error:
        _report(Failed(str(error)))
        return 2
    except (ValueError, OSError, ImportError, EngineError, _native.StatusError) as error:
        _report(Failed(str(error) or type(error).__name__))
        return 1


class _Process:
    def __init__(self) -> None:
        self._offers: asyncio.Queue[int] = asyncio.Queue()
        self._host_bytes = 0

    def attend(self, stop: Callable[[], None]) -> None:
        follow_parent(stop, self._offers.put_nowait)

    async def load(self, config: EngineConfig) -> LoadedModel:
        """Loads the model when the parent lets it, in the memory that it offers."""
        await asyncio.to_thread(model_path, config.model)  # a download needs no memory
        reason = ""
        while True:
            _report(NeedsMemory(reason))
            share = MachineShare(memory_bytes=await self._offers.get())
            try:
                loaded = await load_in_thread(replace(config, share=share))
            except NoRoomError as error:
                reason = str(error)
            else:
                self._host_bytes = loaded.core.host_bytes
                return loaded

    async def became_ready(self, state: ServerState) -> None:
        models = await list_models(state, {}, OPERATOR)
        _report(Ready(self._host_bytes, models.data))


def _report(message: Report) -> None:
    report(msgspec.to_builtins(message))
