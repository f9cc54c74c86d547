"""Calls of tools as Hermes, Qwen2.5 and Qwen3 write them.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls follow one another. Arguments go out as they are written, once the name is known. A
call in another order (arguments first) goes out when it is complete. Anything else is
text, its markers included.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any, ClassVar, cast

from pagemill.render.events import CallArguments, CallEnd, CallStart, Event, Text
from pagemill.render.formats.json_span import JsonSpan

MAX_HEAD_CHARS = 1024
MAX_BODY_CHARS = 2**16
_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)+")\s*,\s*"arguments"\s*:\s*(?=\{)'
)


class _State(enum.Enum):
    HEAD = 0  # until `"arguments": {`
    ARGUMENTS = 1  # they go out as they come
    TAIL = 2  # after the arguments
    BODY = 3  # a call in another order, kept until it is complete
    TEXT = 4  # no call


class Hermes:
    """Implements `base.Format`."""

    opener: ClassVar[str] = "<tool_call>"
    closer: ClassVar[str] = "</tool_call>"

    def __init__(self) -> None:
        self._state = _State.HEAD
        self._kept: list[str] = []
        self._num_kept = 0
        self._span = JsonSpan()

    @staticmethod
    def is_in(template: str) -> bool:
        """See `base.Format`; other formats write parameters as elements between these markers."""
        others = ("<function=", "<arg_key>", "<parameter=")
        return all(part in template for part in ("<tool_call>", "</tool_call>", "arguments")) and (
            not any(part in template for part in others)
        )

    @property
    def quotes_markers(self) -> bool:
        """See `base.Format`."""
        quotes = (_State.HEAD, _State.ARGUMENTS, _State.BODY)
        return self._state in quotes and self._span.in_string

    def open(self, events: list[Event]) -> None:
        """See `base.Format`."""
        del events
        self._state = _State.HEAD
        self._kept, self._num_kept = [], 0
        self._span = JsonSpan()

    def push(self, text: str, events: list[Event]) -> None:
        """See `base.Format`."""
        if self._state is _State.ARGUMENTS:
            self._push_arguments(text, events)
        elif self._state is _State.TEXT:
            events.append(Text(text))
        else:
            self._keep(text, events)

    def close(self, events: list[Event]) -> None:
        """See `base.Format`."""
        self._end(events, self.closer)

    def cut(self, events: list[Event]) -> None:
        """See `base.Format`; the closing marker may be missing behind a complete call."""
        self._end(events, "")

    def _keep(self, text: str, events: list[Event]) -> None:
        self._kept.append(text)
        self._num_kept += len(text)
        if self._state is not _State.TAIL:
            self._span.push(text)
        if self._state is _State.HEAD:
            kept = "".join(self._kept)
            self._kept = [kept]
            head = _HEAD.match(kept)
            if head is not None and head.end() <= MAX_HEAD_CHARS:
                self._begin(head, events)
                return
            if self._num_kept > MAX_HEAD_CHARS:
                self._state = _State.BODY
        limit = MAX_HEAD_CHARS if self._state is _State.TAIL else MAX_BODY_CHARS
        if self._num_kept > limit:
            self._give_up(events)

    def _begin(self, head: re.Match[str], events: list[Event]) -> None:
        name = _parsed(head[1])
        if not isinstance(name, str):
            self._give_up(events)
            return
        events.append(CallStart(name))
        rest = head.string[head.end() :]
        self._state = _State.ARGUMENTS
        self._kept, self._num_kept = [], 0
        self._span = JsonSpan()
        self._push_arguments(rest, events)

    def _push_arguments(self, text: str, events: list[Event]) -> None:
        end = self._span.push(text)
        events.append(CallArguments(text if end is None else text[:end]))
        if end is None:
            return
        self._state = _State.TAIL
        if end < len(text):
            self._keep(text[end:], events)

    def _end(self, events: list[Event], closer: str) -> None:
        kept = "".join(self._kept)
        if self._state is _State.ARGUMENTS:
            events.append(CallEnd())
        elif self._state is _State.TAIL:
            events.append(CallEnd())
            if kept.strip() and _parsed(f'{{"arguments":0{kept}') is None:
                events.append(Text(kept))
        elif self._state is _State.TEXT:
            if closer:
                events.append(Text(closer))
        elif (call := _whole_call(kept)) is not None:
            name, arguments = call
            events += (CallStart(name), CallArguments(arguments), CallEnd())
        else:
            events.append(Text(self.opener + kept + closer))

    def _give_up(self, events: list[Event]) -> None:
        kept = "".join(self._kept)
        if self._state is _State.TAIL:
            events += (CallEnd(), Text(kept))
        else:
            events.append(Text(self.opener + kept))
        self._state = _State.TEXT
        self._kept, self._num_kept = [], 0


def _whole_call(text: str) -> tuple[str, str] | None:
    call = _parsed(text)
    if not isinstance(call, dict):
        return None
    fields = cast(dict[str, Any], call)
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str) or not name:
        return None
    if arguments is None:
        return name, "{}"
    if isinstance(arguments, str):
        return name, arguments
    if not isinstance(arguments, dict):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
