"""What a tool or reasoning format has to provide.

A format owns a region of the output: what is between its opening and its closing marker.
`OutputParser` finds the markers and hands the text of the region to one object per choice:

    region = Hermes()
    region.open(events)
    region.push('{"name": "now", "arguments": {}}', events)
    region.close(events)            # or region.cut(events), if the output ends first

An implementation
1. appends the same events however the text of a region was portioned;
2. loses no text: what is not in its format becomes `Text`;
3. keeps a bounded amount of text and takes time linear in the text's length.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from pagemill.render.events import Event


class Format(Protocol):
    """The regions of one format in one choice, one after the other."""

    opener: ClassVar[str]
    closer: ClassVar[str]

    @staticmethod
    def is_in(template: str) -> bool:
        """True if a chat template with this source surely has its model write this format."""
        ...

    @property
    def quotes_markers(self) -> bool:
        """True if a marker at this place of the region is data, as in a string of JSON."""
        ...

    def open(self, events: list[Event]) -> None:
        """The opening marker was met, or the prompt ended with it."""
        ...

    def push(self, text: str, events: list[Event]) -> None:
        """Appends the events that `text`, the next of the region, completes."""
        ...

    def close(self, events: list[Event]) -> None:
        """The closing marker was met."""
        ...

    def cut(self, events: list[Event]) -> None:
        """The output ended within the region."""
        ...
