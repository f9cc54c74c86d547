"""A host of models that have fake processes, on real sockets; for tests."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from pagemill.config import build
from pagemill.config.serve_models import ServeModelsConfig, read_models
from pagemill.model_host.app import create_app
from pagemill.model_host.host import ModelHost
from pagemill.model_host.hosted_model import HostedModel, ModelState
from pagemill.router.testing.fake_fleet import listening
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.lifecycle import Lifecycle

FAKE_PROCESS = "pagemill.model_host.testing.fake_model_process"
MEMORY = 1000
"""Bytes of a fake host, all of which models may use."""


@dataclass(frozen=True, slots=True)
class FakeHost:
    """A running host and a client of it."""

    client: httpx.AsyncClient
    host: ModelHost

    def model(self, name: str) -> HostedModel:
        """The model that a request may call `name`."""
        return self.host.named(name, ANONYMOUS)

    async def complete(self, name: str | None, **fields: Any) -> httpx.Response:
        """The response to a request that names the model `name`."""
        named = {} if name is None else {"model": name}
        return await self.client.post("/v1/completions", json=named | fields)

    def limit_waits(self, wait_timeout: float) -> None:
        """From now on, requests wait for so many seconds."""
        options = self.host._options  # pyright: ignore[reportPrivateUsage]
        self.host._options = replace(  # pyright: ignore[reportPrivateUsage]
            options, wait_timeout=wait_timeout
        )

    def loaded(self) -> list[str]:
        """The models that are loaded."""
        return [each.name for each in self.host.models if each.state is ModelState.LOADED]


@contextlib.asynccontextmanager
async def fake_host(
    models: Mapping[str, Any], *, keys: tuple[ApiKey, ...] = (), **settings: object
) -> AsyncGenerator[FakeHost]:
    """Runs a host of `models`, which are the entries of the file; the `model` of each says how its
    process behaves (`fake_model_process`). `settings` are options by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "models.yaml")
        path.write_text(yaml.safe_dump(dict(models), sort_keys=False))
        options = {"models": str(path), "memory_utilization": 1.0}
        config = build(ServeModelsConfig, options | settings)
        host = ModelHost(config, read_models(config), folder, MEMORY, FAKE_PROCESS)
        lifecycle = Lifecycle()
        lifecycle.became_ready()
        host.start()
        try:
            async with (
                listening(create_app(config, host, lifecycle, KeyRing(keys))) as url,
                httpx.AsyncClient(base_url=url, timeout=120) as client,
            ):
                yield FakeHost(client, host)
        finally:
            await host.close()
