"""Pages of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pagemill.server.errors import ApiError
from pagemill.server.protocol.response_store import InputItems
from pagemill.server.responses.input import Item


def page_of(
    items: Sequence[Item], after: str | None, limit: int, order: Literal["asc", "desc"]
) -> InputItems:
    """At most `limit` of `items` behind the one with the id `after`, the last first for "desc".

    Raises:
        ApiError: 404: there is no such item.
    """
    listed = list(items) if order == "asc" else list(items)[::-1]
    if after is not None:
        ids = [item["id"] for item in listed]
        if after not in ids:
            raise ApiError(404, f"`after`: there is no item {after[:100]!r}.", "after")
        listed = listed[ids.index(after) + 1 :]
    page = listed[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return InputItems(page, first, last, len(listed) > len(page))
