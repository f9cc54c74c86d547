"""`/v1/conversations`: items that responses continue and add to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Text
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.conversations import (
    AddItemsRequest,
    Conversation,
    ConversationName,
    CreateRequest,
    DeletedConversation,
    ItemName,
    ItemPage,
    ItemsRequest,
    UpdateRequest,
)
from pagemill.server.protocol.responses import MAX_ITEMS
from pagemill.server.responses.conversations import ConversationStore, StoredConversation
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item, items_of
from pagemill.server.responses.pages import page_of
from pagemill.server.state import ServerState


async def create(server: ServerState, body: CreateRequest, caller: Caller) -> Conversation:
    """Begins a conversation."""
    conversation = Conversation(
        id=new_id("conv"), created_at=int(time.time()), metadata=body.metadata
    )
    encode = msgspec.json.encode
    stored = StoredConversation(encode(conversation), encode(_new_items(body.items)))
    if not await _store(server).create(caller.key_id, conversation.id, stored):
        raise ApiError(500, "The conversation cannot be stored; the server's log says why.")
    return conversation


async def retrieve(server: ServerState, body: ConversationName, caller: Caller) -> Text:
    """A conversation, without its items."""
    found = await _found(server, body, caller)
    return Text(found.about, "application/json")


async def update(server: ServerState, body: UpdateRequest, caller: Caller) -> Text:
    """Replaces the metadata of a conversation."""

    def change(stored: StoredConversation) -> StoredConversation:
        about: dict[str, Any] = msgspec.json.decode(stored.about)
        return stored._replace(about=msgspec.json.encode({**about, "metadata": body.metadata}))

    changed = await _changed(server, body, caller, change)
    return Text(changed.about, "application/json")


async def delete(
    server: ServerState, body: ConversationName, caller: Caller
) -> DeletedConversation:
    """Forgets a conversation and its items; responses that were part of it stay."""
    if not await _store(server).delete(caller.key_id, body.conversation_id):
        raise _absent(body)
    return DeletedConversation(body.conversation_id)


async def list_items(server: ServerState, body: ItemsRequest, caller: Caller) -> ItemPage:
    """The items of a conversation, in pages."""
    found = await _found(server, body, caller)
    return page_of(msgspec.json.decode(found.items), body.after, body.limit, body.order)


async def add_items(server: ServerState, body: AddItemsRequest, caller: Caller) -> ItemPage:
    """Appends items to a conversation; the answer has those alone."""
    new = _new_items(body.items)
    most = server.config.max_body_bytes

    def change(stored: StoredConversation) -> StoredConversation:
        items = [*msgspec.json.decode(stored.items), *new]
        encoded = msgspec.json.encode(items)
        if len(items) > MAX_ITEMS or len(encoded) > most:
            raise bad_request(
                f"`items`: the conversation would have more than {MAX_ITEMS} items, or more bytes"
                " than a request may have (--max-body-bytes); begin another one.",
                "items",
            )
        return stored._replace(items=encoded)

    await _changed(server, body, caller, change)
    return page_of(new, None, len(new) or 1, "asc")


async def retrieve_item(server: ServerState, body: ItemName, caller: Caller) -> Text:
    """An item of a conversation."""
    found = await _found(server, body, caller)
    for item in msgspec.json.decode(found.items):
        if item["id"] == body.item_id:
            return Text(msgspec.json.encode(item), "application/json")
    raise _no_item(body)


async def delete_item(server: ServerState, body: ItemName, caller: Caller) -> Text:
    """Takes an item out of a conversation, which is the answer."""

    def change(stored: StoredConversation) -> StoredConversation:
        items: list[Item] = msgspec.json.decode(stored.items)
        kept = [item for item in items if item["id"] != body.item_id]
        if len(kept) == len(items):
            raise _no_item(body)
        return stored._replace(items=msgspec.json.encode(kept))

    changed = await _changed(server, body, caller, change)
    return Text(changed.about, "application/json")


def _new_items(sent: list[Item]) -> list[Item]:
    return items_of(sent, "items")


def _store(server: ServerState) -> ConversationStore:
    if server.conversations is None:
        raise ApiError(404, "This server stores no conversations: --response-store-bytes is 0.")
    return server.conversations


async def _found(server: ServerState, body: ConversationName, caller: Caller) -> StoredConversation:
    found = await _store(server).get(caller.key_id, body.conversation_id)
    if found is None:
        raise _absent(body)
    return found


async def _changed(
    server: ServerState,
    body: ConversationName,
    caller: Caller,
    change: Callable[[StoredConversation], StoredConversation],
) -> StoredConversation:
    changed = await _store(server).change(caller.key_id, body.conversation_id, change)
    if changed is None:
        raise _absent(body)
    return changed


def _absent(body: ConversationName) -> ApiError:
    return ApiError(
        404,
        f"There is no conversation {body.conversation_id[:100]!r}. It is another key's, or has been"
        " deleted or evicted (--response-store-bytes).",
        "conversation_id",
    )


def _no_item(body: ItemName) -> ApiError:
    return ApiError(404, f"The conversation has no item {body.item_id[:100]!r}.", "item_id")
