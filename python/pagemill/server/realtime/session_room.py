"""What all realtime sessions of a server may keep in memory, and what one owner's may."""

from __future__ import annotations

from collections import Counter

from pagemill.server.errors import ApiError

SOUND_BYTES = 2**28
"""Of sound, in buffers, and committed and not yet read."""
CONVERSATION_BYTES = 2**30
"""Of the items of conversations."""


class SessionRoom:
    """What all sessions share. Belongs to one event loop."""

    def __init__(self, max_bytes: int, what: str, remedy: str) -> None:
        """`max_bytes` of `what`, half of it of one owner, which can follow `remedy`."""
        self.max_bytes, self.what, self.remedy = max_bytes, what, remedy
        self.num_bytes = 0
        """What all owners have taken."""
        self.by_owner: Counter[str] = Counter()

    @classmethod
    def of_sound(cls, max_bytes: int = SOUND_BYTES) -> SessionRoom:
        """Sound that clients have sent, until it is read."""
        return cls(max_bytes, "audio", "wait until it is transcribed, or clear a buffer")

    @classmethod
    def of_conversations(cls, max_bytes: int = CONVERSATION_BYTES) -> SessionRoom:
        """Items of conversations."""
        return cls(max_bytes, "conversations", "delete items, or close a session")


class OwnersRoom:
    """What the sessions of one owner may take of a `SessionRoom`."""

    def __init__(self, room: SessionRoom, owner: str) -> None:
        self._room, self._owner = room, owner

    def take(self, size: int) -> None:
        """`size` more bytes are used, until `give`.

        Raises:
            ApiError: 429: there are too many.
        """
        room = self._room
        if room.by_owner[self._owner] + size > room.max_bytes // 2:
            raise ApiError(
                429,
                f"Your sessions have more than {room.max_bytes // 2} bytes of {room.what}:"
                f" {room.remedy}.",
            )
        if room.num_bytes + size > room.max_bytes:
            raise ApiError(
                429, f"Sessions have more than {room.max_bytes} bytes of {room.what}; try again."
            )
        self.add(size)

    def give(self, size: int) -> None:
        """`size` bytes are not used any more."""
        self.add(-size)

    def add(self, size: int) -> None:
        """As `take`, for what cannot be refused."""
        self._room.num_bytes += size
        self._room.by_owner[self._owner] += size
        if not self._room.by_owner[self._owner]:
            del self._room.by_owner[self._owner]
