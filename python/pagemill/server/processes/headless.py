"""`pagemill serve --headless`: engines of a server that is on another machine, and no HTTP.

    supervisor --+-- engine 2     joins the server's gate, engine/remote/joining.py
                 +-- engine 3     ...

Engines outlive the server: when it ends, they wait for it to be started again.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile

from pagemill import __version__
from pagemill.config import ServeConfig
from pagemill.engine.remote.identity import meeting_place
from pagemill.observe.logging import configure
from pagemill.server.processes.engine_processes import EngineProcesses
from pagemill.server.processes.kept_processes import STOP_GRACE_S, EndedError, KeptProcesses
from pagemill.server.stop_signals import stop_on_signals

_LOGGER = logging.getLogger("pagemill.server")


def run_engines(config: ServeConfig) -> int:
    """Runs the engines of this machine until a signal stops it; returns the exit status.

    Raises:
        ConfigError: the server's address or the secret cannot be used.
    """
    configure(config.observe.log_level, "", config.observe.log_format)
    place = meeting_place(config)
    model = config.engine.model.model or "the default model"
    _LOGGER.info("pagemill %s, %s, engines of %s", __version__, model, place.address)
    with tempfile.TemporaryDirectory(prefix="pagemill-") as folder:  # mode 0700
        return asyncio.run(_run(config, folder))


async def _run(config: ServeConfig, folder: str) -> int:
    kept = KeptProcesses(lambda _: None)

    def on_signal() -> None:
        if kept.stop.is_set():  # a second time: they wait for no request any longer
            kept.ask("engine")
        kept.stop.set()

    stop_on_signals(on_signal)
    engines = EngineProcesses(config, kept, folder, {})
    local = config.server.data_parallel.local_engines
    keepers = [asyncio.create_task(engines.keep(engine)) for engine in local]
    stopping = asyncio.create_task(kept.stop.wait())
    status = 0
    try:
        await asyncio.wait({stopping, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        for keeper in keepers:
            if keeper.done():
                keeper.result()
        _LOGGER.info("stopping: running requests may finish")
        await kept.ask_to_end("engine", config.server.shutdown_timeout + STOP_GRACE_S)
        _LOGGER.info("stopped")
    except EndedError as ended:
        status = ended.status
    finally:
        for task in (stopping, *keepers):
            task.cancel()
        await kept.kill()
    return status
