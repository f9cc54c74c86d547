"""Reasoning as DeepSeek R1, Qwen3 and others write it: `<think>`, thoughts, `</think>`, answer.

Newlines beside the markers belong to neither: templates write them back when they show a message.
"""

from __future__ import annotations

from typing import ClassVar

from pagemill.render.bordered_text import BorderedText
from pagemill.render.events import Event, Reasoning


class Think:
    """Implements `base.Format`."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"
    quotes_markers: bool = False

    def __init__(self) -> None:
        self._text = BorderedText(after_marker=True)

    @staticmethod
    def is_in(template: str) -> bool:
        """See `base.Format`."""
        return "</think>" in template

    def open(self, events: list[Event]) -> None:
        """See `base.Format`."""
        del events
        self._text = BorderedText(after_marker=True)

    def push(self, text: str, events: list[Event]) -> None:
        """See `base.Format`."""
        if text := self._text.push(text):
            events.append(Reasoning(text))

    def close(self, events: list[Event]) -> None:
        """See `base.Format`."""

    def cut(self, events: list[Event]) -> None:
        """See `base.Format`."""
        if rest := self._text.rest():
            events.append(Reasoning(rest))
