"""Bodies of `/v1/conversations`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules
from pagemill.server.protocol.response_store import InputItems

MAX_NEW_ITEMS = 20
_Id = Annotated[str, Meta(max_length=512)]
_Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
_NewItems = Annotated[list[dict[str, Any]], Meta(max_length=MAX_NEW_ITEMS)]


class CreateRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The first items of a conversation, as in the input of a response."""

    items: _NewItems = []
    metadata: _Metadata = {}


class ConversationName(msgspec.Struct, kw_only=True, frozen=True):
    """Names a conversation; the path does, so that bodies need not."""

    conversation_id: _Id = ""


class UpdateRequest(ConversationName, kw_only=True, frozen=True):
    """Replaces the metadata."""

    metadata: _Metadata = {}


class ItemsRequest(ConversationName, kw_only=True, frozen=True):
    """A page of items; `after` is the last item of the page before."""

    after: _Id | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


class AddItemsRequest(ConversationName, kw_only=True, frozen=True):
    """Items to append."""

    items: _NewItems


class ItemName(ConversationName, kw_only=True, frozen=True):
    """Names an item of a conversation."""

    item_id: _Id = ""


RULES = FieldRules(unsupported={}, ignored=frozenset({"include", "include[]"}))


class Conversation(msgspec.Struct, kw_only=True):
    """A conversation, without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: str = "conversation"


class DeletedConversation(msgspec.Struct):
    """A conversation that is not stored any longer."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


ItemPage = InputItems
Item = dict[str, Any]
"""An item, as it is in the input or output of responses."""
