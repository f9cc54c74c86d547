"""Where in a JSON text an output is: the arrays that it is in, and the items that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

Keys = tuple[int, ...]
"""Nodes of a `Paths` that a value may be of."""


class Paths:
    """Which arrays of a text have distinct items: nodes by what is in them.

    A node has `u` (true if it is an array of distinct items), `a` (true if it has so many possible
    items that there is always another one), `p` (nodes of properties by name), `o` (of other
    properties), `x` (of the first items), `i` (of other items).
    """

    def __init__(self, nodes: Sequence[Any]) -> None:
        """`nodes`: from JSON; the first one is the root."""
        self._nodes = nodes

    def has_distinct_items(self, keys: Keys) -> bool:
        """Whether an array's items are distinct."""
        return any(self._nodes[key].get("u") for key in keys)

    def is_ample(self, keys: Keys) -> bool:
        """Whether there is always another item."""
        return all(self._nodes[key].get("a") for key in keys if self._nodes[key].get("u"))

    def property(self, keys: Keys, name: str) -> Keys:
        """The nodes of a property."""
        found: dict[int, None] = {}
        for key in keys:
            node = self._nodes[key]
            found |= dict.fromkeys(node.get("p", {}).get(name, node.get("o", ())))
        return tuple(found)

    def item(self, keys: Keys, index: int) -> Keys:
        """The nodes of an item."""
        found: dict[int, None] = {}
        for key in keys:
            node = self._nodes[key]
            first = cast(list[list[int]], node.get("x", ()))
            found |= dict.fromkeys(first[index] if index < len(first) else node.get("i", ()))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Frame:
    """An array or an object that is not closed yet.

    `start`: where its current item or property begins in the text. `used`: its items, if they have
    to be distinct. `child`: the nodes of the next value.
    """

    outer: Frame | None
    is_array: bool
    keys: Keys
    start: int
    child: Keys = ()
    index: int = 0
    is_distinct: bool = False
    used: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the text, whose length is `end`."""

    frame: Frame | None = None
    end: int = 0
    is_inside_string: bool = False
    is_escaped: bool = False


class JsonTrace:
    """Follows a text. White space between tokens of JSON is left out."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._text = bytearray()
        self._positions = [Position()]

    @property
    def position(self) -> Position:
        """Where the text ends."""
        return self._positions[-1]

    def since(self, start: int) -> bytes:
        """The text from `start` on."""
        return bytes(self._text[start:])

    def accept(self, token: bytes) -> None:
        """Goes on with the text of a token."""
        frame, is_inside, is_escaped = (
            self.position.frame, self.position.is_inside_string, self.position.is_escaped,
        )  # fmt: skip
        text = self._text
        for byte in token:
            if is_inside:
                text.append(byte)
                if is_escaped:
                    is_escaped = False
                elif byte == 0x5C:
                    is_escaped = True
                elif byte == 0x22:
                    is_inside = False
            elif byte not in b" \t\r\n":
                is_inside = byte == 0x22
                frame = self._structure(frame, byte)
        self._positions.append(Position(frame, len(text), is_inside, is_escaped))

    def rollback(self, num_tokens: int) -> None:
        """Takes the last tokens back."""
        if num_tokens:
            del self._positions[-num_tokens:]
            del self._text[self.position.end :]

    def _structure(self, frame: Frame | None, byte: int) -> Frame | None:
        """Takes a byte outside of strings; the frame behind it."""
        text = self._text
        if byte in b"[{":
            keys = frame.child if frame is not None else (0,)
            text.append(byte)
            is_array = byte == 0x5B
            return Frame(
                frame,
                is_array,
                keys,
                len(text),
                self._paths.item(keys, 0) if is_array else (),
                is_distinct=is_array and self._paths.has_distinct_items(keys),
            )
        if frame is not None and byte in b"]}":
            text.append(byte)
            return frame.outer
        if frame is not None and byte == 0x2C:
            frame = self._after_comma(frame)
        elif frame is not None and byte == 0x3A and not frame.is_array:
            name = json_string(bytes(text[frame.start :]))
            frame = replace(frame, child=self._paths.property(frame.keys, name))
        text.append(byte)
        return frame

    def _after_comma(self, frame: Frame) -> Frame:
        start = len(self._text) + 1
        if not frame.is_array:
            return replace(frame, start=start)
        used = frame.used
        if frame.is_distinct:
            used |= {bytes(self._text[frame.start :])}
        index = frame.index + 1
        child = self._paths.item(frame.keys, index)
        return replace(frame, start=start, used=used, index=index, child=child)


def json_string(text: bytes) -> str:
    """The value of a JSON string; "" if it is none."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
