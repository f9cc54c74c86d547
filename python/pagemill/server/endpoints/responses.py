"""`POST /v1/responses`, and the routes of stored responses."""

from __future__ import annotations

from typing import Any

import msgspec

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer, Text
from pagemill.server.chat import check_chat, checked_fields, render_chat, rendered_prompt
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.logprobs import LogprobFormatter
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.generate import GenerateRequest
from pagemill.server.protocol.response_store import (
    DeletedResponse,
    InputItems,
    InputItemsRequest,
    RetrieveRequest,
    StoredResponse,
)
from pagemill.server.protocol.responses import (
    InputTokens,
    Response,
    ResponseError,
    ResponsesRequest,
)
from pagemill.server.respond import ResponseEvents
from pagemill.server.responses.conversations import StoredConversation
from pagemill.server.responses.input import Item, items_of
from pagemill.server.responses.pages import page_of
from pagemill.server.responses.references import resolved
from pagemill.server.responses.request import (
    chat_request,
    conversation_of,
    new_response,
    refuse_server_tools,
    renamed,
    wants_logprobs,
)
from pagemill.server.responses.source import begin
from pagemill.server.responses.store import LOST_AFTER_S, Stored
from pagemill.server.responses.stored_stream import StoredStream
from pagemill.server.responses.stream import ResponseStream
from pagemill.server.responses.tool_offers import is_offer
from pagemill.server.responses.whole import whole_response
from pagemill.server.responses.wording import ResponseWording
from pagemill.server.state import ServerState
from pagemill.server.text_files import TextFiles
from pagemill.server.time_limit import in_time

_ANSWERED = ("completed", "incomplete")
_LOST = ResponseError("server_error", "The process that generated this response has ended.")


async def create(server: ServerState, body: ResponsesRequest, caller: Caller) -> Answer:
    """Answers a conversation, which may be a stored one with new items."""
    pipeline, _ = server.models.resolve(body.model, caller)
    store = server.responses if body.store else None
    if body.background and store is None:
        raise bad_request(
            "`background` needs `store`, and a server that stores responses.", "background"
        )
    history, new_items = await _read(server, pipeline, body, caller)
    items = [*history, *new_items]
    source, sampling = await begin(pipeline, server.tools, body, items, caller)
    response = new_response(body, pipeline.model.name, sampling, store=store is not None)
    formatter = LogprobFormatter(pipeline.renderer, False) if wants_logprobs(body) else None
    wording = ResponseWording(
        response,
        source,
        formatter,
        include_reasoning=body.include_reasoning,
        is_streamed=body.stream,
    )
    interval = max(server.config.stream_interval, body.stream_interval) if body.stream else None

    async def grow() -> None:
        await _add_to_conversation(server, response, new_items, caller)

    if body.background:
        assert store is not None
        owner, conversation = caller.key_id, msgspec.json.encode(items)
        begun = await server.background.start(
            store, owner, conversation, source, wording, interval, grow
        )
        return begun if interval is None else StoredStream(store, owner, response.id, after=-1)

    async def keep() -> None:
        if store is not None:
            conversation, written = msgspec.json.encode(items), msgspec.json.encode(response)
            item_ids = [item.id for item in response.output]
            await store.put(caller.key_id, response.id, conversation, written, item_ids=item_ids)
        await grow()

    if interval is not None:
        events = ResponseEvents(source, wording, interval)
        keeps = store is not None or response.conversation is not None
        return ResponseStream(events, wording.begin, keep if keeps else None)
    await whole_response(source, wording)
    await keep()
    return response


async def render(server: ServerState, body: ResponsesRequest, caller: Caller) -> GenerateRequest:
    """The request of `/inference/v1/generate` that answers the same; nothing is stored."""
    pipeline, _ = server.models.resolve(body.model, caller)
    refuse_server_tools(body)
    history, new_items = await _read(server, pipeline, body, caller)
    items = [*history, *new_items]
    request = chat_request(body, items)
    with renamed():
        return await render_chat(pipeline, request, caller)


async def count_tokens(server: ServerState, body: ResponsesRequest, caller: Caller) -> InputTokens:
    """Counts the tokens of the prompt that a response would answer; nothing is stored."""
    pipeline, _ = server.models.resolve(body.model, caller)
    refuse_server_tools(body)
    history, new_items = await _read(server, pipeline, body, caller)
    request = chat_request(body, [*history, *new_items])
    with renamed():
        check_chat(request)
        async with in_time(pipeline.deadline(body.timeout, caller)):
            prompt = await rendered_prompt(pipeline.rendering, request, caller)
    return InputTokens(len(prompt))


async def retrieve(
    server: ServerState, body: RetrieveRequest, caller: Caller
) -> Text | StoredStream:
    """A stored response, or the events of one that was begun in the background and streamed."""
    found = await _stored(server, body.response_id, caller, "response_id")
    store = server.responses
    if not body.stream or store is None:
        return Text(found.response, "application/json")
    events = await store.events(caller.key_id, body.response_id, -1)
    if events is None or not events.chunks:
        raise bad_request(
            "`stream`: the response was not created with `background: true` and `stream: true`.",
            "stream",
        )
    return StoredStream(store, caller.key_id, body.response_id, body.starting_after)


async def cancel(server: ServerState, body: StoredResponse, caller: Caller) -> Text:
    """Ends a response that runs in the background; one that has ended stays as it is."""
    found = await _stored(server, body.response_id, caller, "response_id")
    response: dict[str, Any] = msgspec.json.decode(found.response)
    if not response["background"]:
        raise bad_request(
            "Only responses with `background: true` can be cancelled; close the connection of"
            " others.",
            "response_id",
        )
    store = server.responses
    if found.idle_s is not None and store is not None:
        cancelled = msgspec.json.encode({**response, "status": "cancelled"})
        await store.end(caller.key_id, body.response_id, cancelled)
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
    return page_of(msgspec.json.decode(found.conversation), body.after, body.limit, body.order)


async def _history(server: ServerState, body: ResponsesRequest, caller: Caller) -> list[Item]:
    """What the request continues: the items of an earlier response, and its output, or those of a
    conversation."""
    conversation = conversation_of(body)
    if conversation is not None:
        return await _conversation(server, conversation.id, body, caller)
    if body.previous_response_id is None:
        return []
    found = await _stored(server, body.previous_response_id, caller, "previous_response_id")
    if found.idle_s is not None:
        raise bad_request(
            "`previous_response_id`: the response is still in progress.", "previous_response_id"
        )
    if len(found.conversation) + len(found.response) > server.config.max_body_bytes:
        raise bad_request(
            "`previous_response_id`: the conversation is larger than a request may be"
            " (--max-body-bytes).",
            "previous_response_id",
        )
    response: dict[str, Any] = msgspec.json.decode(found.response)
    return [*msgspec.json.decode(found.conversation), *response["output"]]


async def _conversation(
    server: ServerState, name: str, body: ResponsesRequest, caller: Caller
) -> list[Item]:
    """The items of a conversation."""
    if body.previous_response_id is not None:
        raise bad_request(
            "`conversation` and `previous_response_id` exclude each other: send one.",
            "conversation",
        )
    store = server.conversations
    found = None if store is None else await store.get(caller.key_id, name)
    if found is None:
        raise ApiError(
            404,
            f"`conversation`: there is no conversation {name[:100]!r}. It is another key's, or has"
            " been deleted or evicted (--response-store-bytes).",
            "conversation",
        )
    if len(found.items) > server.config.max_body_bytes:
        raise bad_request(
            "`conversation`: it is larger than a request may be (--max-body-bytes); begin another"
            " one.",
            "conversation",
        )
    return msgspec.json.decode(found.items)


async def _add_to_conversation(
    server: ServerState, response: Response, new_items: list[Item], caller: Caller
) -> None:
    """Appends what a response answered and its output, unless it failed."""
    store, conversation = server.conversations, response.conversation
    if store is None or conversation is None or response.status not in _ANSWERED:
        return
    added = [*new_items, *msgspec.to_builtins(response.output)]

    def append(stored: StoredConversation) -> StoredConversation:
        items = [*msgspec.json.decode(stored.items), *added]
        return stored._replace(items=msgspec.json.encode(items))

    await store.change(caller.key_id, conversation.id, append)


async def _read(
    server: ServerState, pipeline: Pipeline, body: ResponsesRequest, caller: Caller
) -> tuple[list[Item], list[Item]]:
    """What the request continues, and the items of its input, with stored items and the text of
    files in place of their ids. All else of it is checked before files are read."""
    max_bytes = server.config.max_body_bytes
    sent = await resolved(body.input, server.responses, caller.key_id, max_bytes)
    history = await _history(server, body, caller)
    files = TextFiles(server, caller, "input")
    unread = files.unread()
    items = items_of(await unread.in_items(sent))
    if not unread.num_files:
        return history, items
    request = chat_request(body, [*history, *items])
    if not any(is_offer(tool) for tool in body.tools):  # these join the tools later
        with renamed():
            checked_fields(pipeline, request, caller)
    async with in_time(pipeline.deadline(body.timeout, caller)):
        return history, items_of(await files.in_items(sent))


async def _stored(server: ServerState, response_id: str, caller: Caller, param: str) -> Stored:
    store = server.responses
    found = None if store is None else await store.get(caller.key_id, response_id)
    if found is None:
        raise _absent(response_id, param)
    if found.idle_s is not None and found.idle_s > LOST_AFTER_S:
        response: dict[str, Any] = msgspec.json.decode(found.response)
        response |= {"status": "failed", "error": _LOST}
        return Stored(found.conversation, msgspec.json.encode(response))
    return found


def _absent(response_id: str, param: str) -> ApiError:
    return ApiError(
        404,
        f"`{param}`: there is no response {response_id[:100]!r}. It was not stored, is another"
        " key's, or has been deleted or evicted (--response-store-bytes).",
        param,
    )
