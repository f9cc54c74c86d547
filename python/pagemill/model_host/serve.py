"""`pagemill serve-models`: listens, loads models as they are named, drains, ends processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tempfile
from collections.abc import AsyncGenerator, Sequence

import uvloop

from pagemill.config.memory import available_memory_bytes
from pagemill.config.serve_models import HostedModelConfig, ServeModelsConfig, read_models
from pagemill.model_host.app import create_app
from pagemill.model_host.host import ModelHost
from pagemill.router.front import begin, listening, until_drained
from pagemill.server.access.key_ring import KeyFile, KeyRing
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.transport.http_server import listen

_LOGGER = logging.getLogger("pagemill.models")


def run(config: ServeModelsConfig) -> int:
    """Serves until a signal stops it; returns the process's exit status.

    Raises:
        ConfigError: a setting, or the file of models, cannot be used.
        OSError: the address cannot be listened on.
    """
    models = read_models(config)
    policies = {model.serve.engine.scheduler.scheduling_policy for model in models}
    key_file = begin(config, allows_priority=policies == {"priority"})
    with (
        contextlib.closing(listen(config.listen.host, config.listen.port)) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(config, models, key_file, listener))


async def _serve(
    config: ServeModelsConfig,
    models: Sequence[HostedModelConfig],
    key_file: KeyFile,
    listener: socket.socket,
) -> int:
    lifecycle, ring = Lifecycle(), KeyRing(key_file.keys)
    async with running_host(config, models, lifecycle, ring, listener):
        await until_drained(config, lifecycle, key_file, ring)
    _LOGGER.info("stopped")
    return 0


@contextlib.asynccontextmanager
async def running_host(
    config: ServeModelsConfig,
    models: Sequence[HostedModelConfig],
    lifecycle: Lifecycle,
    ring: KeyRing,
    listener: socket.socket,
) -> AsyncGenerator[None]:
    """A host of `models` that listens. All processes have ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="pagemill-models-") as folder:  # mode 0700
        host = ModelHost(config, models, folder, available_memory_bytes())
        app = create_app(config, host, lifecycle, ring)
        what = f"serving {len(models)} models, each when it is named"
        try:
            async with listening(app, config, listener, lifecycle, what):
                host.start()
                yield
        finally:
            await host.close()
