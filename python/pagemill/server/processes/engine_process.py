"""A process of `pagemill serve` that has an engine, if that is not in the one that serves HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.loading import load, model_facts
from pagemill.engine.outputs import EngineError
from pagemill.observe.logging import configure
from pagemill.observe.stats_line import StatsLine
from pagemill.server.processes.child_process import follow_parent, report_progress, report_ready
from pagemill.server.rendering import open_vocabulary

_LOOK_EVERY_S = 0.5
_LOOKS_PER_LINE = 20


def run(job: Mapping[str, Any]) -> int:
    """Serves engine `job["index"]` of those at the sockets `job["sockets"]` until the parent stops
    it; returns the exit status of `pagemill serve`."""
    config = build(ServeConfig, job["config"])
    configure(config.observe.log_level, job["name"], config.observe.log_format)
    index, sockets = job["index"], job["sockets"]
    engine = for_media(config.engine, config.server.media)
    try:
        if len(sockets) > 1:
            share = MachineShare(index, len(sockets), job["memory_bytes"])
            engine = take_share(for_share(engine, share))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(engine, sockets[index]))
    except ConfigError as error:
        print(f"pagemill serve: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, EngineError, _native.StatusError) as error:
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


async def _serve(config: EngineConfig, path: str) -> None:
    stop = asyncio.Event()
    follow_parent(stop.set)
    loaded = await asyncio.to_thread(load, config)
    bindings = loaded.core.bindings
    if not config.model.skip_tokenizer_init:
        bindings.grammars.open_vocabulary = lambda: open_vocabulary(
            loaded.source,
            config.model,
            loaded.core.built.vocab_size,
            loaded.core.built.eos_token_ids,
        )
    server = EngineServer(bindings, model_facts(loaded), _native.output_schema())
    try:
        await server.listen(path)
        report_ready()
        line = StatsLine(bindings.engine.stats)
        looks = 0
        looked = time.monotonic()
        while not stop.is_set():
            await asyncio.wait({asyncio.create_task(stop.wait())}, timeout=_LOOK_EVERY_S)
            loaded.core.check()
            since, looked = looked, time.monotonic()
            if bindings.engine.stats().progress_age_s < looked - since:
                report_progress()
            looks += 1
            if looks % _LOOKS_PER_LINE == 0:
                line.log()
    finally:
        await server.close()
        await asyncio.to_thread(bindings.engine.shutdown)
        await asyncio.to_thread(loaded.core.close_ranks)
