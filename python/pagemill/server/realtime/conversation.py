"""The items of a realtime conversation: those of the Responses API, in order, and bounded."""

from __future__ import annotations

from typing import Any

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.responses import MAX_ITEMS
from pagemill.server.realtime.audio_parts import num_bytes, set_transcript
from pagemill.server.realtime.session_room import OwnersRoom
from pagemill.server.responses.input import Item, items_of

ROOT = "root"
"""What the first item comes after."""


class Conversation:
    """Items, with their sizes."""

    def __init__(self, max_bytes: int, room: OwnersRoom) -> None:
        """At most `max_bytes`, of `room`."""
        self._max_bytes = max_bytes
        self._room = room
        self._num_bytes = 0
        self.items: list[Item] = []
        self._by_id: dict[str, Item] = {}

    @property
    def last_id(self) -> str | None:
        """The id of the last item."""
        return self.items[-1]["id"] if self.items else None

    def create(self, sent: dict[str, Any] | None, after: str | None) -> tuple[Item, str | None]:
        """Adds an item of the client behind the item `after` (None: the last one); returns it, and
        the id of the item before it.

        Raises:
            ApiError: 400: it is not one, or there is no room for it; 429: conversations of the
                server have too many bytes.
        """
        if sent is None:
            raise bad_request("`item` is required.", "item")
        item = complete_items([sent], "item")[0]
        if item["id"] in self._by_id:
            raise bad_request(f"There is an item {item['id'][:100]!r} already.", "item")
        size = num_bytes(item)
        if len(self.items) >= MAX_ITEMS or self._num_bytes + size > self._max_bytes:
            raise bad_request(
                f"The conversation would have more than {MAX_ITEMS} items or {self._max_bytes}"
                " bytes (--max-body-bytes): delete some.",
                "item",
            )
        at = len(self.items)
        if after is not None:
            at = 0 if after == ROOT else self._index(after, "previous_item_id") + 1
        self._room.take(size)
        self.items.insert(at, item)
        self._by_id[item["id"]] = item
        self._num_bytes += size
        return item, self.items[at - 1]["id"] if at else None

    def append(self, item: Item) -> None:
        """Adds an item that the model wrote, even if there is little room."""
        self.items.append(item)
        self._by_id[item["id"]] = item
        self._grow(num_bytes(item))

    def write_transcript(self, item_id: str, transcript: str) -> None:
        """Notes what is said in the audio of a turn, if the item is still there."""
        item = self._by_id.get(item_id)
        if item is not None:
            before = num_bytes(item)
            set_transcript(item, transcript)
            self._grow(num_bytes(item) - before)

    def get(self, item_id: str | None) -> Item:
        """The item.

        Raises:
            ApiError: 404: there is none.
        """
        item = self._by_id.get(item_id or "")
        if item is None:
            raise _unknown(item_id or "", "item_id")
        return item

    def delete(self, item_id: str | None) -> None:
        """Removes the item.

        Raises:
            ApiError: 404: there is none.
        """
        removed = self.items.pop(self._index(item_id or "", "item_id"))
        del self._by_id[removed["id"]]
        self._grow(-num_bytes(removed))

    def close(self) -> None:
        """Removes all items."""
        self.items.clear()
        self._by_id.clear()
        self._grow(-self._num_bytes)

    def _grow(self, size: int) -> None:
        self._num_bytes += size
        self._room.add(size)

    def _index(self, item_id: str, param: str) -> int:
        for at, item in enumerate(self.items):
            if item["id"] == item_id:
                return at
        raise _unknown(item_id, param)


def complete_items(sent: list[dict[str, Any]], name: str) -> list[Item]:
    """Items of a client, in the field `name`, completed.

    Raises:
        ApiError: 400 that names the item.
    """
    try:
        return items_of(sent)
    except ApiError as error:
        raise bad_request(error.message.replace("`input[0]", f"`{name}"), name) from error


def _unknown(item_id: str, param: str) -> ApiError:
    return ApiError(404, f"`{param}`: there is no item {item_id[:100]!r}.", param)
