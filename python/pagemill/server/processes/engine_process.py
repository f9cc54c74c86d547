"""A process of `pagemill serve` that has an engine, if that is not in the one that serves HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvloop

from pagemill import _native
from pagemill.config import (
    ConfigError,
    EngineConfig,
    MachineShare,
    ServeConfig,
    for_media,
    for_share,
)
from pagemill.config.fields import build
from pagemill.engine.control_calls import run_call
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.loading import LoadedModel, load, model_facts
from pagemill.engine.outputs import EngineError
from pagemill.observe.logging import configure
from pagemill.observe.stats_line import StatsLine
from pagemill.server.processes.child_process import (
    follow_parent,
    report,
    report_progress,
    report_ready,
)

if TYPE_CHECKING:
    from pagemill.structured.vocabulary import Vocabulary

_LOOK_EVERY_S = 0.5
_LOOKS_PER_LINE = 20


def run(job: Mapping[str, Any]) -> int:
    """Serves engine `job["engine"]` of those of the server at the socket `job["socket"]`, or to a
    server on another machine, until the parent stops it; returns the exit status of
    `pagemill serve`."""
    config = build(ServeConfig, job["config"])
    configure(config.observe.log_level, job["name"], config.observe.log_format)
    engines = config.server.data_parallel
    engine = for_media(config.engine, config.server.media)
    try:
        if engines.data_parallel_size > 1:
            local = engines.local_engines
            index = local.index(job["engine"])
            share = MachineShare(index, len(local), job["memory_bytes"], local.start)
            engine = take_share(for_share(engine, share))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Run(config, engine, job).run())
    except ConfigError as error:
        print(f"pagemill serve: {error}", file=sys.stderr)
        return 2
    except (EngineError, _native.StatusError) as error:
        print(f"pagemill serve: {error.message}", file=sys.stderr)
        return 1
    except (ValueError, OSError, ImportError) as error:
        print(f"pagemill serve: {error}", file=sys.stderr)
        return 1
    return 0


def take_share(config: EngineConfig) -> EngineConfig:
    """Pins this process, before it has further threads, to its share of the cores; `config` with
    the number of threads of a share. With fewer cores than engines nothing is pinned."""
    share, executor = config.share, config.executor
    cores = _native.detect_capabilities().cores  # of all engines: a container's limit counts
    cpus = _native.cpu_share(share.index, share.count)
    if cpus:
        os.sched_setaffinity(0, cpus)
    if executor.threads:
        return config
    threads = max(1, cores // (share.count * len(config.local_ranks)))
    return replace(config, executor=replace(executor, threads=threads))


class _Run:
    """One run of an engine, whose options are `engine`."""

    def __init__(self, config: ServeConfig, engine: EngineConfig, job: Mapping[str, Any]) -> None:
        self._config = config
        self._engine = engine
        self._job = job
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._is_loaded = False

    async def run(self) -> None:
        """Loads the model, serves, and ends when the parent stops it.

        Raises:
            ConfigError, EngineError, StatusError, ...: see `load` and `keep_joined`.
        """
        follow_parent(self._on_stop)
        loaded = await asyncio.to_thread(load, self._engine)
        self._is_loaded = True
        bindings = loaded.core.bindings
        if not self._config.engine.model.skip_tokenizer_init:
            bindings.grammars.open_vocabulary = lambda: self._open_vocabulary(loaded)
        server = EngineServer(bindings, model_facts(loaded), _native.output_schema())
        try:
            await self._serve(server, loaded)
        finally:
            await server.close()
            await asyncio.to_thread(bindings.engine.shutdown)
            await asyncio.to_thread(loaded.core.close_ranks)

    def _open_vocabulary(self, loaded: LoadedModel) -> Vocabulary:
        from pagemill.server.rendering import open_vocabulary  # for the first grammar

        built = loaded.core.built
        return open_vocabulary(
            loaded.source, self._config.engine.model, built.vocab_size, built.eos_token_ids
        )

    def _on_stop(self) -> None:
        if not self._is_loaded:
            os._exit(0)  # as if the parent had ended: loading cannot be interrupted
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def _serve(self, server: EngineServer, loaded: LoadedModel) -> None:
        engines = self._config.server.data_parallel
        digest = ""
        if engines.spans_machines:
            from pagemill.engine.model_digest import model_digest
            from pagemill.engine.remote.identity import with_watermark

            digest = await asyncio.to_thread(model_digest, [loaded.core.built])
            digest = with_watermark(digest, self._engine.watermark)
        report(digest)
        if engines.headless:
            await self._serve_elsewhere(server, loaded, digest)
        else:
            await server.listen(self._job["socket"])
            report_ready()
            await self._watch(loaded)

    async def _serve_elsewhere(
        self, server: EngineServer, loaded: LoadedModel, digest: str
    ) -> None:
        """Serves clients on the server's machine, and finishes their requests."""
        from pagemill.engine.remote.identity import meeting_place, options_digest, wire_version
        from pagemill.engine.remote.join_messages import RUN_BYTES, Claim
        from pagemill.engine.remote.joining import keep_joined

        joined = asyncio.Event()
        options = options_digest(self._config.engine)
        run = secrets.token_bytes(RUN_BYTES)
        claim = Claim(wire_version(), digest, options, self._job["engine"], run)
        place = meeting_place(self._config)
        joining = asyncio.create_task(keep_joined(server, place, claim, joined))
        try:
            if await self._is_let_in(joining, joined):
                report_ready()
                watching = asyncio.create_task(self._watch(loaded))
                await asyncio.wait({joining, watching}, return_when=asyncio.FIRST_COMPLETED)
                (joining if joining.done() else watching).result()
        finally:
            joining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await joining
        loaded.core.bindings.engine.drain()
        server.send_room()
        await self._finish_requests(loaded)
        await server.finish()

    async def _is_let_in(self, joining: asyncio.Task[None], joined: asyncio.Event) -> bool:
        """Waits until the engine has joined; False if it is stopped before. Raises what
        `keep_joined` raises."""
        waiting = [asyncio.create_task(each.wait()) for each in (joined, self._stop)]
        await asyncio.wait({joining, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if joining.done():
            joining.result()
        return joined.is_set()

    async def _watch(self, loaded: LoadedModel) -> None:
        """Lets the parent know that the engine lives, until it is stopped.

        Raises:
            EngineError: the engine cannot run a step any longer.
        """
        engine = loaded.core.bindings.engine
        line = StatsLine(engine.stats)
        looks = 0
        looked = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _LOOK_EVERY_S)
            loaded.core.check()
            since, looked = looked, time.monotonic()
            if engine.stats().progress_age_s < looked - since:
                report_progress()
            looks += 1
            if looks % _LOOKS_PER_LINE == 0:
                line.log()

    async def _finish_requests(self, loaded: LoadedModel) -> None:
        """Waits for them until `shutdown_timeout`, or the parent stops the engine once more."""
        timeout_s = self._config.server.shutdown_timeout
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and not self._stop_now.is_set():
            if await run_call(loaded.core.bindings, "wait_idle", {"timeout_s": _LOOK_EVERY_S}):
                return
