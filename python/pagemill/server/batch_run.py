"""`pagemill batch`: loads a model, answers a batch file, ends."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
import uvloop

from pagemill.config import EngineConfig, ServerConfig
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.answer import Answer
from pagemill.server.batch import BatchOutput, answer_lines, line_urls, read_lines
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.open_model import open_model
from pagemill.server.processes.engine_source import OwnEngine
from pagemill.server.speech.line import invoke_line
from pagemill.server.state import ServerState


def run(config: EngineConfig, source: BinaryIO, output: BinaryIO, concurrency: int) -> int:
    """Answers the lines of `source` in `output`; returns how many could not be answered.

    Raises:
        ConfigError: a setting does not fit the model or the machine.
        OSError: a file cannot be read or written.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, source, output, concurrency))


async def _run(config: EngineConfig, source: BinaryIO, output: BinaryIO, concurrency: int) -> int:
    engine = OwnEngine(config)
    try:
        client, pipeline = await open_model(engine, config)
        server = ServerState(ServerConfig())
        server.serve(pipeline, client.stats)
        progress = Progress(_num_lines(source), output)
        try:
            send = functools.partial(_send, server)
            urls = line_urls(server.endpoints)
            await answer_lines(read_lines(source), urls, send, progress.write, concurrency)
        finally:
            progress.end()
            await pipeline.engine.shutdown()
        return progress.num_failed
    finally:
        await engine.close()


async def _send(server: ServerState, endpoint: Endpoint, fields: dict[str, Any]) -> Answer:
    return await invoke_line(server, endpoint, fields, ANONYMOUS)


class Progress:
    """Writes answers, and shows on a terminal how many there are."""

    def __init__(
        self, total: int, output: BinaryIO, show: Callable[[str], object] | None = None
    ) -> None:
        """`total` 0: the number of lines is not known."""
        self._total = total
        self._output = output
        self._show = show or (sys.stderr.write if sys.stderr.isatty() else None)
        self._num_done = 0
        self.num_failed = 0

    async def write(self, line: BatchOutput) -> None:
        """Writes one answer."""
        self._output.write(msgspec.json.encode(line) + b"\n")
        self._num_done += 1
        self.num_failed += line.response is None or line.response.status_code != 200
        if self._show is not None:
            self._show(f"\r{self._bar()}{self._num_done} answered, {self.num_failed} failed")

    def end(self) -> None:
        """Ends the line on the terminal."""
        self._output.flush()
        if self._show is not None:
            self._show("\n")

    def _bar(self) -> str:
        if not self._total:
            return ""
        filled = 30 * self._num_done // self._total
        return f"[{'#' * filled}{' ' * (30 - filled)}] "


def _num_lines(source: BinaryIO) -> int:
    """Lines that are not blank; 0 for what can be read only once."""
    if not source.seekable():
        return 0
    count = sum(1 for line in source if line.strip())
    source.seek(0)
    return count
