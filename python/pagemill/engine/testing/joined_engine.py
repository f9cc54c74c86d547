"""An engine that joins a gate, as on two machines."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from typing import Any

from pagemill.engine.engine_server import EngineServer
from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.remote.gate import Gate
from pagemill.engine.remote.join_messages import RUN_BYTES, Claim
from pagemill.engine.remote.joining import keep_joined
from pagemill.engine.reserved_port import reserved_port

VERSION, MODEL, OPTIONS = "1.2.3", "ab" * 32, "cd" * 32
SECRET = "what both machines know"
ENGINE = 5


@contextlib.contextmanager
def reserved_place() -> Generator[MeetingPlace]:
    """At a port that no other process gets meanwhile."""
    with reserved_port() as port:
        yield MeetingPlace("127.0.0.1", port, SECRET)


def claim(**other: Any) -> Claim:
    """That of an engine which belongs to a gate with these constants."""
    return replace(Claim(VERSION, MODEL, OPTIONS, ENGINE, b"r" * RUN_BYTES), **other)


@contextlib.asynccontextmanager
async def joined(server: EngineServer) -> AsyncGenerator[str, None]:
    """The path of the gate's socket for `server`, which has joined."""
    with reserved_place() as place, tempfile.TemporaryDirectory() as folder:
        gate = Gate(place, {ENGINE: f"{folder}/engine"}, VERSION, OPTIONS)
        gate.open()
        has_joined = asyncio.Event()
        joining = asyncio.create_task(keep_joined(server, place, claim(), has_joined))
        try:
            await has_joined.wait()
            yield f"{folder}/engine"
        finally:
            joining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await joining
            gate.close()
