"""A client of a fake server that has a folder for batches, and its workers; for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from pagemill.config import BatchApiConfig
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey
from pagemill.server.batches.folder import locked_folder
from pagemill.server.batches.run import BatchWork
from pagemill.server.batches.worker import BatchWorker
from pagemill.server.testing.fake_server import FakeServer, fake_server

URL = "/v1/completions"
MESSAGES = [{"role": "user", "content": "a"}]
ENDED = {"failed", "completed", "expired", "cancelled"}


def lines(count: int, url: str = URL, **fields: Any) -> bytes:
    """A file of requests `r0`, `r1` and so on; `fields` of their bodies."""
    body = {"prompt": "a", "max_tokens": 3, **fields} if url == URL else fields
    rows = [
        {"custom_id": f"r{i}", "method": "POST", "url": url, "body": body} for i in range(count)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Service:
    """A client of a fake server with a folder, and workers."""

    def __init__(self, server: FakeServer, workers: Sequence[BatchWorker], key: str) -> None:
        self.server = server
        self.workers = workers
        self.headers = {"authorization": f"Bearer {key}"} if key else {}

    def of(self, key: str) -> Service:
        """A client with another key."""
        return Service(self.server, self.workers, key)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request."""
        return await self.server.client.request(method, path, headers=self.headers, **options)

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """The answer to a GET."""
        response = await self.request("GET", path, **options)
        assert response.status_code == status, response.text
        return response.json()

    async def upload(self, content: bytes, status: int = 200, **fields: str) -> Any:
        """Uploads a file."""
        data = {"purpose": "batch", **fields}
        response = await self.request(
            "POST", "/v1/files", data=data, files={"file": ("in.jsonl", content)}
        )
        assert response.status_code == status, response.text
        return response.json()

    async def create(self, file_id: str, status: int = 200, url: str = URL, **fields: Any) -> Any:
        """Creates a batch."""
        body = {"input_file_id": file_id, "endpoint": url, "completion_window": "24h", **fields}
        response = await self.request("POST", "/v1/batches", json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def begin(self, content: bytes, **fields: Any) -> str:
        """The id of a batch of a new file."""
        return (await self.create((await self.upload(content))["id"], **fields))["id"]

    async def until(self, batch_id: str, holds: Callable[[Any], bool]) -> Any:
        """The batch once something holds of it."""
        async with asyncio.timeout(120):
            while True:
                batch = await self.get(f"/v1/batches/{batch_id}")
                if holds(batch):
                    return batch
                await asyncio.sleep(0.01)

    async def ended(self, batch_id: str) -> Any:
        """The batch at its end."""
        return await self.until(batch_id, lambda batch: batch["status"] in ENDED)

    async def answers(self, file_id: str) -> list[Any]:
        """The lines of a file of answers."""
        content = await self.request("GET", f"/v1/files/{file_id}/content")
        assert content.status_code == 200
        assert content.headers["content-type"] == "application/octet-stream"
        return [json.loads(line) for line in content.text.splitlines()]


def config_of(folder: Path, **options: Any) -> BatchApiConfig:
    """The options of a server that has `folder`."""
    return replace(BatchApiConfig(batch_dir=str(folder), batch_concurrency=4), **options)


@contextlib.asynccontextmanager
async def service(
    folder: Path,
    options: FakeOptions | None = None,
    *,
    keys: Sequence[ApiKey] = (),
    num_workers: int = 1,
    low_priority: bool = False,
    **limits: Any,
) -> AsyncGenerator[Service]:
    """Runs a server with `num_workers` workers; the client has the first key."""
    config = config_of(folder, **limits)
    ring = KeyRing(keys)
    with locked_folder(config):
        async with fake_server(options, ring=ring, batches=config) as server:
            work = BatchWork(server.state, ring.caller_named, is_low_priority=low_priority)
            workers = [BatchWorker(work) for _ in range(num_workers)]
            for worker in workers:
                worker.start()
            try:
                yield Service(server, workers, keys[0].caller.key_id if keys else "")
            finally:
                for worker in workers:
                    await worker.close()


def key(name: str, **options: Any) -> ApiKey:
    """A key that is its own name."""
    return ApiKey.of(name, Caller(name, **options))


def slow(step_s: float = 0.005) -> FakeOptions:
    """An engine that takes its time."""
    return FakeOptions(step_s=step_s)


def run_service(body: Callable[[], Awaitable[None]]) -> None:
    """Runs a test's body, for four minutes at most."""

    async def limited() -> None:
        async with asyncio.timeout(240):
            await body()

    asyncio.run(limited())
