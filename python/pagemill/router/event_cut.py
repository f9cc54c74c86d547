"""Cuts a stream of server-sent events between events."""

from __future__ import annotations

_END = b"\n\n"
MAX_HELD_BYTES = 2**20


class EventCut:
    """Passes whole events on: if the server breaks off within one, its beginning is not sent, and
    the event that says so can follow.

    A part that ends with an event, as servers send them, is passed on as it is. Beginnings of
    events are held back up to `MAX_HELD_BYTES`.
    """

    def __init__(self) -> None:
        self._held = b""
        self.between_events = True
        """Whether what was passed on ends with an event."""

    def push(self, part: bytes) -> bytes:
        """What can be sent now that `part` has arrived."""
        data = self._held + part if self._held else part
        end = len(data) if data.endswith(_END) else data.rfind(_END) + len(_END)
        if end < len(_END):
            end = 0
        if len(data) - end > MAX_HELD_BYTES:
            self._held, self.between_events = b"", False
            return data
        if end:
            self.between_events = True
        self._held = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """What is held back, at the regular end of the stream."""
        held, self._held = self._held, b""
        return held
