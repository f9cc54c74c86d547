"""A model's process without a model. Its `model` says how it behaves: `bytes=100&delay=0.1`.

starts  a file: it asks for memory when that exists
bytes   of the host's memory that it needs
delay   seconds that it loads
loads   a file: it loads until that exists
fails   a sentence: it cannot serve
dies    with this exit status, when it gets a request
stuck   1: it does not end when it should
prints  this, without the end of a line, before it reports anything

A request is answered with its path and its `model`; `seconds` in its body is how long that takes,
and `end` a file that has to exist. With `stream` the answer is events, ten a second.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pagemill.server.processes.child_process import follow_parent, report

_EVENT_S = 0.1


def run(job: Mapping[str, Any]) -> int:
    """Serves until the parent stops it."""
    asyncio.run(_FakeProcess(job["config"]).run())
    return 0


class _FakeProcess:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._script = dict(parse_qsl(config["model"]))
        self._path = config["uds"]
        self._share = config["memory_utilization"]
        self._running = 0

    async def run(self) -> None:
        offers: asyncio.Queue[int] = asyncio.Queue()
        stop = asyncio.Event()
        follow_parent(stop.set, offers.put_nowait)
        print(self._script.get("prints", ""), end="", flush=True)
        if reason := self._script.get("fails"):
            report({"type": "failed", "reason": reason})
            return
        await _exists(self._script.get("starts", "/"))
        needed = int(self._script.get("bytes", 0))
        reason = ""
        while True:
            report({"type": "needs_memory", "reason": reason})
            usable = round(await offers.get() * self._share)
            if usable >= needed:
                break
            reason = f"it takes {needed} bytes, but {usable} may be used"
        await asyncio.sleep(float(self._script.get("delay", 0)))
        await _exists(self._script.get("loads", "/"))
        await asyncio.start_unix_server(self._answer, self._path)
        report({"type": "ready", "host_bytes": needed, "cards": []})
        await stop.wait()
        while self._running or "stuck" in self._script:
            await asyncio.sleep(0.01)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            sent = await reader.readexactly(int(size or 0))
            if status := self._script.get("dies"):
                os._exit(int(status))
            body: Any = json.loads(sent) if sent[:1] == b"{" else {}
            await self._write(writer, head.split(b" ")[1].decode(), body)
        except ConnectionError:
            pass
        finally:
            self._running -= 1
            writer.close()

    async def _write(self, writer: asyncio.StreamWriter, path: str, body: Any) -> None:
        stream = bool(body.get("stream"))
        kind = "text/event-stream" if stream else "application/json"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        for _ in range(round(body.get("seconds", 0) / _EVENT_S)):
            if stream:
                writer.write(b"data: {}\n\n")
            await writer.drain()
            await asyncio.sleep(_EVENT_S)
        await _exists(body.get("end", "/"))
        answer = json.dumps({"path": path, "model": body.get("model"), "process": os.getpid()})
        writer.write(b"data: [DONE]\n\n" if stream else answer.encode())
        await writer.drain()


async def _exists(path: str) -> None:
    while not Path(path).exists():
        await asyncio.sleep(0.01)
