"""Bodies of the routes of stored responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.server.protocol.decode import FieldRules

_Id = Annotated[str, Meta(max_length=512)]


class StoredResponse(msgspec.Struct, kw_only=True, frozen=True):
    """Names a stored response."""

    response_id: _Id


class RetrieveRequest(StoredResponse, kw_only=True, frozen=True):
    """Reads a response, or with `stream` its events: those behind number `starting_after`."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=-1, le=2**53)] = -1


class InputItemsRequest(StoredResponse, kw_only=True, frozen=True):
    """A page of the items that a response answered; `after` is the last item of the page before."""

    after: _Id | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


RULES = FieldRules(
    unsupported={},
    ignored=frozenset({"include", "include[]", "include_obfuscation"}),
)


class InputItems(msgspec.Struct):
    """One page."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class DeletedResponse(msgspec.Struct):
    """A response that is not stored any longer."""

    id: str
    object: str = "response"
    deleted: bool = True
