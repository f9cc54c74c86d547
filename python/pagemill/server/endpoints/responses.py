"""`POST /v1/responses`, and the routes of stored responses."""

from __future__ import annotations

from typing import Any

import msgspec

from pagemill.server.answer import Answer, Text
from pagemill.server.caller import Caller
from pagemill.server.chat import start_chat
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.response_store import (
    DeletedResponse,
    InputItems,
    InputItemsRequest,
    StoredResponse,
)
from pagemill.server.protocol.responses import Response, ResponsesRequest
from pagemill.server.respond import ResponseEvents, respond
from pagemill.server.response_input import Item, items_of
from pagemill.server.response_request import chat_request, in_names_of_responses, new_response
from pagemill.server.response_store import ResponseStore, Stored
from pagemill.server.response_stream import ResponseStream
from pagemill.server.response_wording import ResponseWording
from pagemill.server.state import ServerState


async def create(server: ServerState, body: ResponsesRequest, caller: Caller) -> Answer:
    """Answers a conversation, which may be a stored one with new items."""
    pipeline, _ = server.models.resolve(body.model)
    items = [*await _history(server, body, caller), *items_of(body.input)]
    try:
        generation = await start_chat(pipeline, chat_request(body, items), caller)
    except ApiError as error:
        raise in_names_of_responses(error) from error
    store = server.responses if body.store else None
    response = new_response(body, pipeline.model.name, generation.sampling, store=store is not None)
    wording = ResponseWording(response, generation, include_reasoning=body.include_reasoning)

    async def keep() -> None:
        if store is not None:
            await _put(store, caller, items, response)

    interval = max(server.config.stream_interval, body.stream_interval)
    answer = await respond(generation, wording, interval if body.stream else None)
    if isinstance(answer, ResponseEvents):
        return ResponseStream(answer, wording.begin, keep if store is not None else None)
    await keep()
    return answer


async def retrieve(server: ServerState, body: StoredResponse, caller: Caller) -> Text:
    """A stored response."""
    found = await _stored(server, body.response_id, caller, "response_id")
    return Text(found.response, "application/json")


async def delete(server: ServerState, body: StoredResponse, caller: Caller) -> DeletedResponse:
    """Forgets a stored response; those that continue it stay."""
    store = server.responses
    if store is None or not await store.delete(caller.key_id, body.response_id):
        raise _absent(body.response_id, "response_id")
    return DeletedResponse(body.response_id)


async def list_input_items(
    server: ServerState, body: InputItemsRequest, caller: Caller
) -> InputItems:
    """The conversation that a stored response answered."""
    found = await _stored(server, body.response_id, caller, "response_id")
    items: list[Item] = msgspec.json.decode(found.conversation)
    if body.order == "desc":
        items.reverse()
    if body.after is not None:
        ids = [item["id"] for item in items]
        if body.after not in ids:
            raise ApiError(404, f"`after`: there is no item {body.after[:100]!r}.", "after")
        items = items[ids.index(body.after) + 1 :]
    page = items[: body.limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return InputItems(page, first, last, len(items) > len(page))


async def _history(server: ServerState, body: ResponsesRequest, caller: Caller) -> list[Item]:
    """What the request continues: the items of an earlier response, and its output."""
    if body.previous_response_id is None:
        return []
    found = await _stored(server, body.previous_response_id, caller, "previous_response_id")
    if len(found.conversation) + len(found.response) > server.config.max_body_bytes:
        raise bad_request(
            "`previous_response_id`: the conversation is larger than a request may be"
            " (--max-body-bytes).",
            "previous_response_id",
        )
    response: dict[str, Any] = msgspec.json.decode(found.response)
    return [*msgspec.json.decode(found.conversation), *response["output"]]


async def _stored(server: ServerState, response_id: str, caller: Caller, param: str) -> Stored:
    store = server.responses
    found = None if store is None else await store.get(caller.key_id, response_id)
    if found is None:
        raise _absent(response_id, param)
    return found


async def _put(store: ResponseStore, caller: Caller, items: list[Item], response: Response) -> None:
    conversation = msgspec.json.encode(items)
    await store.put(caller.key_id, response.id, conversation, msgspec.json.encode(response))


def _absent(response_id: str, param: str) -> ApiError:
    return ApiError(
        404,
        f"`{param}`: there is no response {response_id[:100]!r}. It was not stored, is another"
        " key's, or has been deleted or evicted (--response-store-bytes).",
        param,
    )
