"""Values of parameters that a model writes as text, as JSON, while they come."""

from __future__ import annotations

import json

from pagemill.render.formats.format import MAX_BODY_CHARS, Schema, Value
from pagemill.render.formats.typed_values import as_json, parameter, type_names

_STRING_TYPES = ("string", "str", "true")  # "true" answers whether it is a string
_MAX_BORDER = 1024  # a longer run of white space is part of the value


class ValueWriter:
    """One value. A string goes out as it comes, if it is sure to be one; others when they end."""

    def __init__(self, value: Value, schema: Schema | None, key: str, declared: str | None) -> None:
        """Begins a value.

        Args:
          value: how the format writes it.
          schema: of the tool's parameters, if it is known.
          key: the parameter.
          declared: the type that the model gave, if any.
        """
        self._trim = value.trim
        self._types: frozenset[str] = frozenset()
        self._streams = False
        if value.typing == "schema":
            self._types = type_names(parameter(schema, key))
            self._streams = self._types == frozenset({"string"})
        elif value.typing == "declared":
            self._streams = declared in _STRING_TYPES
        self._at_start = True
        self._begun = False
        self._kept: list[str] = []
        self._num_kept = 0

    def push(self, text: str) -> str:
        """Adds `text`; returns what of the JSON is certain."""
        if not self._streams:
            self._kept.append(text)
            self._num_kept += len(text)
            if self._num_kept <= MAX_BODY_CHARS:
                return ""
            self._streams = True  # a text so long is a string
            text, self._kept = "".join(self._kept), []
        return self._push_string(text)

    def end(self) -> str:
        """Returns the rest of the JSON."""
        if self._streams:
            return '"' if self._begun else '""'
        return as_json(self._trimmed("".join(self._kept)), self._types)

    def _push_string(self, text: str) -> str:
        text = "".join(self._kept) + text
        if self._trim == "space" and not self._begun:
            text = text.lstrip()
        elif self._trim == "line" and self._at_start and text:
            text = text.removeprefix("\n")
            self._at_start = False
        certain = self._certain(text)
        self._kept = [text[len(certain) :]]
        if not certain:
            return ""
        opening = "" if self._begun else '"'
        self._begun = True
        return opening + _escaped(certain)

    def _certain(self, text: str) -> str:
        """What of `text` is not at the value's end, if the value ends here."""
        if self._trim == "space":
            certain = text.rstrip()
            return certain if len(text) - len(certain) <= _MAX_BORDER else text
        return text.removesuffix("\n") if self._trim == "line" else text

    def _trimmed(self, text: str) -> str:
        if self._trim == "space":
            return text.strip()
        return text.removeprefix("\n").removesuffix("\n") if self._trim == "line" else text


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
