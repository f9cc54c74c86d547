"""Where a server gets its engine: it starts one, or joins the one of another process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config.media import MEDIA_KINDS
from pagemill.engine.client import EngineClient
from pagemill.engine.native import OutputCodec
from pagemill.engine.socket_client import Connect, SocketClient, connect_unix
from pagemill.structured.compiler import GrammarCompiler
from pagemill.weights.source import ModelSource

if TYPE_CHECKING:
    from pagemill.engine.loading import LoadedModel


class EngineSource(Protocol):
    """One engine, from its start to its end."""

    async def open(self) -> EngineClient:
        """A client, not started, of an engine that runs or will run.

        Raises:
            ConfigError, FetchError, WeightsError, ModelConfigError, StatusError: see `load`.
        """
        ...

    async def model_source(self) -> ModelSource:
        """The files of the model; after the client has been started."""
        ...

    @property
    def grammars(self) -> GrammarCompiler:
        """Compiles grammars in this process; valid after `open`."""
        ...

    def check(self) -> None:
        """Raises EngineError if the engine can never run a step again."""
        ...

    async def close(self) -> None:
        """Ends an engine that `open` started. Idempotent."""
        ...


Load = Callable[[EngineConfig], Awaitable["LoadedModel"]]


async def load_in_thread(config: EngineConfig) -> LoadedModel:
    """`load`, beside the event loop; if it is cancelled, ranks are not waited for any longer.
    Raises what `load` raises."""
    stopped = threading.Event()
    try:
        return await asyncio.to_thread(_load, config, stopped)
    finally:
        stopped.set()


def _load(config: EngineConfig, stopped: threading.Event) -> LoadedModel:
    from pagemill.engine.loading import load  # processes without an engine import none of it

    return load(config, stopped)


class OwnEngine:
    """An engine in this process."""

    def __init__(self, config: EngineConfig, load: Load = load_in_thread) -> None:
        self._config = config
        self._load = load
        self._loaded: LoadedModel | None = None

    async def open(self) -> EngineClient:
        """Loads the model."""
        self._loaded = await self._load(self._config)

        from pagemill.engine.loading import model_facts
        from pagemill.engine.local_client import LocalClient

        return LocalClient(self._loaded.core.bindings, model_facts(self._loaded))

    async def model_source(self) -> ModelSource:
        """Read already."""
        assert self._loaded is not None
        return self._loaded.source

    @property
    def grammars(self) -> GrammarCompiler:
        """The engine's own: what was compiled to be checked is compiled."""
        assert self._loaded is not None
        return self._loaded.core.bindings.grammars

    def check(self) -> None:
        """Looks at the other ranks."""
        if self._loaded is not None:
            self._loaded.core.check()

    async def close(self) -> None:
        """Joins the engine's thread, ends the other ranks."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await asyncio.to_thread(loaded.core.bindings.engine.shutdown)
            await asyncio.to_thread(loaded.core.close_ranks)


class OtherEngine:
    """The engine of another process, or several, behind the sockets at `paths`.

    `local` are the numbers of those of this machine; a gate has the sockets of the others.
    """

    def __init__(self, paths: Sequence[str], config: EngineConfig, local: range) -> None:
        codec = OutputCodec(_native.outputs_from_wire, _native.StatusError, _native.output_schema())
        clients = [
            SocketClient(path, codec, connect_unix if engine in local else _passed())
            for engine, path in enumerate(paths)
        ]
        self._model = config.model
        self._all_local = len(local) == len(paths)
        self._client = clients[0] if len(clients) == 1 else _group(clients, config)
        self.grammars = GrammarCompiler(back_end=config.model.structured_outputs_backend)

    async def open(self) -> EngineClient:
        """Whether the engine runs already or not."""
        return self._client

    async def model_source(self) -> ModelSource:
        """Reads headers and configuration, no weights. Engines of other machines have their files
        elsewhere."""
        facts = self._client.model
        path = Path(facts.path)
        if not self._all_local:
            from pagemill.engine.model_source import find_model

            path = await asyncio.to_thread(find_model, self._model)
        return await asyncio.to_thread(ModelSource.open, path, facts.hf_overrides, tensors=False)

    def check(self) -> None:
        """Does nothing: the supervisor watches the engine."""

    async def close(self) -> None:
        """Does nothing: the engine outlives its clients."""


def _passed() -> Connect:
    from pagemill.engine.remote.passed_connection import connect_passed  # most have one machine

    return connect_passed


def _group(clients: Sequence[EngineClient], config: EngineConfig) -> EngineClient:
    from pagemill.engine.engine_group import EngineGroup  # most servers have one engine

    router = _native.Router(
        policy="prefix_aware" if config.cache.enable_prefix_caching else "least_loaded",
        num_engines=len(clients),
        block_size=config.cache.block_size,
    )
    # Those of media have the names of their kinds, and may be the checkpoint's.
    loaded = [*(name for name, _ in config.lora.modules), *MEDIA_KINDS]
    return EngineGroup(clients, router, loaded)
