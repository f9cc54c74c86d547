"""`/v1/messages/batches`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Portions
from pagemill.server.batches.folder import UPLOAD
from pagemill.server.batches.store import BatchStore
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.messages.batches import (
    URL,
    input_lines,
    message_batch,
    results,
)
from pagemill.server.protocol.batch import ENDED, Batch, CreateBatchRequest, ListBatchesRequest
from pagemill.server.protocol.message_batches import (
    CreateMessageBatchRequest,
    DeletedMessageBatch,
    ListMessageBatchesRequest,
    MessageBatch,
    MessageBatchList,
    MessageBatchName,
)
from pagemill.server.state import ServerState


async def create(
    server: ServerState, body: CreateMessageBatchRequest, caller: Caller
) -> MessageBatch:
    """Answers requests for messages when there is room for them, within a day."""
    store, count = server.batch_store, len(body.requests)
    if count > store.config.batch_max_lines:
        raise bad_request(
            f"`requests` has {count} entries; a batch has at most {store.config.batch_max_lines}"
            " (--batch-max-lines).",
            "requests",
        )
    writer = await store.files.create(caller.key_id, "batch", "message_batch.jsonl", UPLOAD)
    try:
        for portion in input_lines(body.requests):
            await writer.write(portion)
        file = await writer.complete(None)
    except BaseException:
        await writer.discard()
        raise
    request = CreateBatchRequest(input_file_id=file.id, endpoint=URL, completion_window="24h")
    try:
        batch = await store.queue.create(caller.key_id, caller.tenant, request, total=count)
    except ApiError:
        await store.files.delete(caller.key_id, file.id)
        raise
    return message_batch(batch)


async def list_batches(
    server: ServerState, body: ListMessageBatchesRequest, caller: Caller
) -> MessageBatchList:
    """The batches of the key, the newest first."""
    page = ListBatchesRequest(after=body.after_id, limit=min(body.limit, 100))
    found = await server.batch_store.queue.page(caller.key_id, page, endpoint=URL)
    data = [message_batch(batch) for batch in found.data]
    return MessageBatchList(data, found.has_more, found.first_id, found.last_id)


async def retrieve(server: ServerState, body: MessageBatchName, caller: Caller) -> MessageBatch:
    """A batch as it is now."""
    return message_batch(await _batch(server.batch_store, body, caller))


async def cancel(server: ServerState, body: MessageBatchName, caller: Caller) -> MessageBatch:
    """Ends a batch early; what was answered stays."""
    await _batch(server.batch_store, body, caller)
    return message_batch(
        await server.batch_store.queue.cancel(caller.key_id, body.message_batch_id)
    )


async def delete(
    server: ServerState, body: MessageBatchName, caller: Caller
) -> DeletedMessageBatch:
    """Forgets a batch that has ended, and its files."""
    store = server.batch_store
    batch = await _ended(store, body, caller)
    await store.queue.delete(caller.key_id, batch.id)
    for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
        if file_id is not None:
            await _delete_file(store, caller, file_id)
    return DeletedMessageBatch(batch.id)


async def read_results(server: ServerState, body: MessageBatchName, caller: Caller) -> Portions:
    """What became of each request of a batch that has ended, a line each."""
    store = server.batch_store
    batch = await _ended(store, body, caller)
    named = (batch.output_file_id, batch.error_file_id)
    try:
        found = [await store.files.content(caller.key_id, each) for each in named if each]
        asked = await store.files.content(caller.key_id, batch.input_file_id)
    except ApiError as error:
        if error.status != 404:
            raise
        message = f"The files of the batch {batch.id} were deleted, or have expired."
        raise ApiError(404, message) from error
    return Portions(results(batch, asked, found), "application/x-jsonl")


async def _batch(store: BatchStore, body: MessageBatchName, caller: Caller) -> Batch:
    batch = await store.queue.get(caller.key_id, body.message_batch_id)
    if batch.endpoint != URL:
        raise ApiError(
            404, f"The batch {batch.id} is for {batch.endpoint}: /v1/batches has it.", "batch_id"
        )
    return batch


async def _ended(store: BatchStore, body: MessageBatchName, caller: Caller) -> Batch:
    batch = await _batch(store, body, caller)
    if batch.status not in ENDED:
        raise bad_request(f"The batch {batch.id} has not ended: wait for it, or cancel it.")
    return batch


async def _delete_file(store: BatchStore, caller: Caller, file_id: str) -> None:
    """Deletes a file, unless it is gone or another batch needs it."""
    try:
        await store.files.delete(caller.key_id, file_id)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
