"""`/v1/batches`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.batch import line_urls
from pagemill.server.endpoints.plugins import PREFIX
from pagemill.server.errors import bad_request
from pagemill.server.protocol.batch import (
    URLS,
    Batch,
    BatchList,
    BatchName,
    CreateBatchRequest,
    ListBatchesRequest,
)
from pagemill.server.state import ServerState


async def create(server: ServerState, body: CreateBatchRequest, caller: Caller) -> Batch:
    """Answers the requests of an uploaded file when there is room for them, within a day."""
    plugins = [url for url in line_urls(server.endpoints) if url.startswith(PREFIX)]
    known = (*URLS, *plugins)
    if body.endpoint not in known:
        raise bad_request(f"`endpoint` must be one of {', '.join(known)}.", "endpoint")
    return await server.batch_store.queue.create(caller.key_id, caller.tenant, body)


async def list_batches(server: ServerState, body: ListBatchesRequest, caller: Caller) -> BatchList:
    """The batches of the key, the newest first."""
    return await server.batch_store.queue.page(caller.key_id, body)


async def retrieve(server: ServerState, body: BatchName, caller: Caller) -> Batch:
    """A batch as it is now."""
    return await server.batch_store.queue.get(caller.key_id, body.batch_id)


async def cancel(server: ServerState, body: BatchName, caller: Caller) -> Batch:
    """Ends a batch early; what was answered stays."""
    return await server.batch_store.queue.cancel(caller.key_id, body.batch_id)
