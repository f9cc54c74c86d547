"""References to items of stored responses, in place of the items themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.responses.input import Item
from pagemill.server.responses.store import ResponseStore


async def resolved(
    sent: str | list[Item], store: ResponseStore | None, owner: str, max_bytes: int
) -> str | list[Item]:
    """The request's `input` with items in place of references.

    Args:
        sent: as the client sent it.
        store: None: nothing is stored.
        owner: the key whose items they are.
        max_bytes: how large the responses together may be that have the items.

    Raises:
        ApiError: 404: there is no such item; 400: they are too many.
    """
    names = [] if isinstance(sent, str) else [_reference(item) for item in sent]
    if not any(names):
        return sent
    found = await _items(names, store, owner, max_bytes)
    items: list[Item] = []
    for item, name in zip(sent, names, strict=True):
        assert isinstance(item, dict)
        if name is not None and name not in found:
            raise ApiError(
                404,
                f"`input` refers to the item {name[:100]!r}, which no stored response of this key"
                " has.",
                "input",
            )
        items.append(item if name is None else found[name])
    return items


def _reference(item: Item) -> str | None:
    """The id of the item that `item` refers to; None if it is one itself."""
    kind, name = item.get("type"), item.get("id")
    is_one = kind == "item_reference" or (kind is None and "role" not in item and name is not None)
    if not is_one:
        return None
    if not isinstance(name, str) or not name:
        raise bad_request("`input` has an item_reference without an `id`.", "input")
    return name


async def _items(
    names: list[str | None], store: ResponseStore | None, owner: str, max_bytes: int
) -> dict[str, Item]:
    """Items of stored responses by their ids: those with `names`, and others."""
    found: dict[str, Item] = {}
    num_bytes = 0
    for name in names:
        if name is None or name in found or store is None:
            continue
        response = await store.response_with(owner, name)
        num_bytes += 0 if response is None else len(response)
        if num_bytes > max_bytes:
            raise bad_request(
                "`input` refers to items of responses that are larger than a request may be"
                " (--max-body-bytes).",
                "input",
            )
        if response is not None:
            decoded: dict[str, Any] = msgspec.json.decode(response)
            found |= {item["id"]: item for item in decoded["output"]}
    return found
