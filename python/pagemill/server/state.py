"""What the endpoints of one server share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pagemill.config import ServerConfig
from pagemill.inputs.task import Task
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.server.batches.store import BatchStore
from pagemill.server.endpoints.plugins import plugin_endpoints
from pagemill.server.endpoints.table import ENDPOINTS
from pagemill.server.errors import ApiError
from pagemill.server.lifecycle import Lifecycle
from pagemill.server.limits.limiter import KeyLimiter
from pagemill.server.pdf_files import PdfFiles
from pagemill.server.pipeline import Pipeline
from pagemill.server.realtime.session_room import SessionRoom
from pagemill.server.records.content_log import ContentLog
from pagemill.server.records.count import count
from pagemill.server.records.record import OnEnd, RequestRecord
from pagemill.server.registry import ModelRegistry
from pagemill.server.responses.background import BackgroundResponses
from pagemill.server.responses.conversations import ConversationStore
from pagemill.server.responses.store import ResponseStore
from pagemill.server.responses.store_file import StoreFile
from pagemill.server.return_times import ReturnTimes
from pagemill.server.tools.servers import ToolServers


class ServerState:
    """Configuration and phase from the start; the models once they are loaded."""

    def __init__(
        self,
        config: ServerConfig,
        limiter: KeyLimiter | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: ToolServers | None = None,
    ) -> None:
        """Begins in the phase of loading.

        Args:
            config: of the server.
            limiter: of the keys; None: they have no limits.
            settings: all that the server was started with, without secrets.
            tools: the servers whose tools responses may call; None: there are none.

        Raises:
            ConfigError: see `plugin_endpoints`.
        """
        self.config = config
        self.endpoints = (*ENDPOINTS, *plugin_endpoints(config.endpoint_plugin))
        """Those of the clients' listener."""
        self.limiter = limiter or KeyLimiter()
        self.settings: Mapping[str, Any] = settings or {}
        self.returns = ReturnTimes()
        self.lifecycle = Lifecycle()
        self._pipeline: Pipeline | None = None
        self._models: ModelRegistry | None = None
        self._stats: Callable[[], EngineSnapshot] | None = None
        self._connected: Callable[[], bool] = lambda: True
        self._listeners: Sequence[OnEnd] = ()
        self.responses: ResponseStore | None = None
        """Stored responses; None if none are stored."""
        self.conversations: ConversationStore | None = None
        """Those of responses; None if none are stored."""
        self._store_file: StoreFile | None = None
        if config.response_store and config.response_store_bytes:
            file = StoreFile(config.response_store, config.response_store_bytes)
            self._store_file = file
            self.responses, self.conversations = ResponseStore(file), ConversationStore(file)
        self.background = BackgroundResponses(self.lifecycle)
        self._batch_store = BatchStore.of(config.batches)
        self.tools = tools or ToolServers()
        self.pdf_files = PdfFiles()
        self.sound_room = SessionRoom.of_sound()
        self.conversation_room = SessionRoom.of_conversations()
        """Of the audio that realtime sessions send."""

    @property
    def loaded(self) -> Pipeline | None:
        """The pipeline, or None while the model is being loaded."""
        return self._pipeline

    @property
    def models(self) -> ModelRegistry:
        """The models that requests name.

        Raises:
            ApiError: 503 while the model is being loaded.
        """
        if self._models is None:
            raise ApiError(503, "The model is still being loaded; try again in a few seconds.")
        return self._models

    @property
    def batch_store(self) -> BatchStore:
        """Files and batches.

        Raises:
            ApiError: 404 if the server has no folder for them.
        """
        if self._batch_store is None:
            raise ApiError(
                404, "This server has no files and batches: it was started without --batch-dir."
            )
        return self._batch_store

    def serve(
        self,
        pipeline: Pipeline,
        stats: Callable[[], EngineSnapshot],
        connected: Callable[[], bool] = lambda: True,
        listeners: Sequence[OnEnd] = (),
    ) -> None:
        """The model is loaded: from now on requests are served, while the engine is connected, and
        `listeners`, which must not raise, get the record of each at its end."""
        pipeline.metrics.watch(pipeline.engine.engines)
        pipeline.longest_s = self.config.request_timeout or None
        decode = functools.partial(pipeline.renderer.decode, skip_special_tokens=False)
        pipeline.content_log = ContentLog.of(
            self.config.content_log, decode if pipeline.renderer.has_text else None
        )
        self._pipeline = pipeline
        self._models = ModelRegistry(pipeline)
        self._stats = stats
        self._connected = connected
        self._listeners = listeners
        self.lifecycle.became_ready()

    def request_ended(self, record: RequestRecord) -> None:
        """Counts a request at its end, once the model is loaded."""
        if self._pipeline is None:
            return
        count(self._pipeline.metrics, record)
        for listener in self._listeners:
            listener(record)
        if record.status == 200 and record.work.model:
            self.returns.ended()

    def count_slow_reader(self) -> None:
        """A connection was closed because its client took too little of a response."""
        if self._pipeline is not None:
            self._pipeline.metrics.slow_reader()

    async def close(self) -> None:
        """Closes what the endpoints share."""
        await self.background.close()
        if self._batch_store is not None:
            await self._batch_store.close()
        await self.tools.close()
        if self._store_file is not None:
            await self._store_file.close()

    @property
    def stats(self) -> EngineSnapshot | None:
        """The engine's state; None while the model is being loaded."""
        return None if self._stats is None else self._stats()

    @property
    def has_engine(self) -> bool:
        """False while the engine's process is started again."""
        return self._connected()

    @property
    def engine_states(self) -> list[str]:
        """Of each of several engines its state (`EngineClient.states`), or "stuck"; empty if there
        is one."""
        if self._pipeline is None:
            return []
        engine = self._pipeline.engine
        states = list(engine.states())
        for number, stats in enumerate(engine.engines()):
            if stats is not None and stats.progress_age_s > self.config.engine_stuck_timeout:
                states[number] = "stuck"
        return states if len(states) > 1 else []

    def has_task(self, tasks: Collection[Task]) -> bool:
        """Whether the model is for one of `tasks`, of which none means any; all may be until it is
        loaded."""
        return not tasks or self._models is None or not self._models.tasks.isdisjoint(tasks)

    def check_progress(self) -> None:
        """Raises a 503 ApiError if the engine is stuck (`--engine-stuck-timeout`); of several, if
        all are."""
        stats = self.stats
        age = 0.0 if stats is None else stats.progress_age_s
        if age > self.config.engine_stuck_timeout:
            raise ApiError(503, f"The engine has made no progress for {age:.0f} s.")
