"""Calls written as JSON: whole objects with name and arguments, or the arguments alone."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from pagemill.render.formats.format import (
    MAX_BODY_CHARS,
    MAX_HEADER_CHARS,
    CallWriter,
    MalformedError,
)
from pagemill.render.formats.json_span import JsonSpan

_STRING = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
_SPACE = " \t\r\n"


@dataclass(frozen=True)
class JsonCall:
    """The fields of an object that is a call: names that its name, its arguments and its id may
    have. Without a name for names, the object has one field: the name, with the arguments."""

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments",)
    ids: tuple[str, ...] = ()

    def __call__(self) -> JsonCalls:
        """A reader of such objects."""
        return JsonCalls(self)

    @cached_property
    def head(self) -> re.Pattern[str]:
        """An object up to its arguments, with groups `name` and `id`, in the order of the fields
        that lets arguments go out as they come."""
        if not self.names:
            return re.compile(rf"\{{\s*(?P<name>{_STRING})(?P<id>)\s*:\s*(?=\{{)")
        call_id = f'(?:"(?:{"|".join(self.ids)})"\\s*:\\s*(?P<id>{_STRING}|\\d+)\\s*,\\s*)?'
        return re.compile(
            r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?'
            + (call_id if self.ids else "(?P<id>)")
            + rf'"(?:{"|".join(self.names)})"\s*:\s*(?P<name>{_STRING})\s*,\s*'
            + rf'"(?:{"|".join(self.arguments)})"\s*:\s*(?=\{{)'
        )

    def read(self, text: str) -> tuple[str, str, str]:
        """Name, id and arguments of a whole object.

        Raises:
            MalformedError: it is not a call.
        """
        fields = _object(text)
        if not self.names:
            if len(fields) != 1:
                raise MalformedError
            ((name, arguments),) = fields.items()
            return _name(name), "", _arguments(arguments)
        if isinstance(fields.get("function"), dict):
            fields = cast(dict[str, Any], fields["function"])
        call_id = _first(fields, self.ids)
        is_id = isinstance(call_id, str | int)
        return (
            _name(_first(fields, self.names)),
            str(call_id) if is_id else "",
            _arguments(_first(fields, self.arguments)),
        )


class _Mode(enum.Enum):
    BETWEEN = 0  # objects, brackets and commas
    HEAD = 1  # of an object, until its arguments begin
    ARGUMENTS = 2  # they go out as they come
    REST = 3  # of an object, behind its arguments
    WHOLE = 4  # an object in another order, kept until it is complete


class JsonCalls:
    """Reads one object, or an array of them. Implements `format.BodyReader`."""

    def __init__(self, call: JsonCall) -> None:
        """`call`: what the objects look like."""
        self._call = call
        self._mode = _Mode.BETWEEN
        self._in_array = False
        self._span = JsonSpan()
        self._kept: list[str] = []
        self._num_kept = 0

    @property
    def in_string(self) -> bool:
        """See `format.BodyReader`."""
        return self._mode is not _Mode.BETWEEN and self._span.in_string

    def push(self, text: str, calls: CallWriter) -> int | None:
        """See `format.BodyReader`."""
        at = 0
        while at < len(text):
            match self._mode:
                case _Mode.ARGUMENTS:
                    at = self._push_arguments(text, at, calls)
                case _Mode.BETWEEN:
                    if self._is_last(text[at], at):
                        return at + 1
                    at += self._mode is _Mode.BETWEEN
                case _Mode.REST:
                    end = self._span.push(text, at)
                    if end is None:
                        return None
                    at = end
                    self._object_ended()
                    if self._is_over:
                        return at
                case _Mode.HEAD | _Mode.WHOLE:
                    at = self._push_object(text, at, calls)
                    if self._is_over:
                        return at
        return None

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`; the last brackets behind a complete call may be missing."""
        if self._mode in (_Mode.HEAD, _Mode.WHOLE):
            self._write(self._call.read("".join(self._kept)), calls)

    @property
    def _is_over(self) -> bool:
        """Behind an object, True if it was the body."""
        return self._mode is _Mode.BETWEEN and not self._in_array

    def _is_last(self, char: str, at: int) -> bool:
        """Looks at a character outside of objects; True if it ends the body."""
        if char == "{":
            self._mode = _Mode.HEAD
            self._span = JsonSpan()
            self._kept, self._num_kept = [], 0
        elif char == "[" and not self._in_array:
            self._in_array = True
        elif char == "]" and self._in_array:
            return True
        elif char not in _SPACE and not (char == "," and self._in_array):
            raise MalformedError(at)
        return False

    def _push_object(self, text: str, at: int, calls: CallWriter) -> int:
        """Keeps what belongs to the object; returns where to go on."""
        end = self._span.push(text, at)
        part = text[at:] if end is None else text[at:end]
        if self._num_kept + len(part) > MAX_BODY_CHARS:
            raise MalformedError(at + MAX_BODY_CHARS - self._num_kept)
        self._kept.append(part)
        self._num_kept += len(part)
        if self._mode is _Mode.HEAD:
            kept = "".join(self._kept)
            self._kept = [kept]
            head = self._call.head.match(kept)
            if head is not None and head.end() <= MAX_HEADER_CHARS:
                name = _parsed(head["name"])
                if not isinstance(name, str) or not name:
                    raise MalformedError(at + len(part) - (len(kept) - head.end()))
                calls.start(name, (head["id"] or "").strip('"'))
                self._mode = _Mode.ARGUMENTS
                self._span = JsonSpan()
                self._kept, self._num_kept = [], 0
                # What follows the head is in `text`: without it, the head had matched before.
                return at + len(part) - (len(kept) - head.end())
            if len(kept) > MAX_HEADER_CHARS:
                self._mode = _Mode.WHOLE
        if end is None:
            return len(text)
        try:
            call = self._call.read("".join(self._kept))
        except MalformedError:
            raise MalformedError(end) from None
        self._write(call, calls)
        self._object_ended()
        return end

    def _push_arguments(self, text: str, at: int, calls: CallWriter) -> int:
        end = self._span.push(text, at)
        if end is None:
            calls.arguments(text[at:])
            return len(text)
        calls.arguments(text[at:end])
        calls.end()
        self._mode = _Mode.REST
        self._span = JsonSpan(depth=1)
        return end

    def _object_ended(self) -> None:
        self._mode = _Mode.BETWEEN
        self._kept, self._num_kept = [], 0

    def _write(self, call: tuple[str, str, str], calls: CallWriter) -> None:
        name, call_id, arguments = call
        calls.start(name, call_id)
        calls.arguments(arguments)
        calls.end()


class JsonArguments:
    """Reads the arguments of a call whose name is known. Implements `format.BodyReader`.

    They go out as the model writes them, even if they are no JSON.
    """

    def __init__(self) -> None:
        """Begins with no text."""
        self._span = JsonSpan()
        self._begun = False
        self._is_object = False

    @property
    def in_string(self) -> bool:
        """See `format.BodyReader`."""
        return self._is_object and self._span.in_string

    def push(self, text: str, calls: CallWriter) -> int | None:
        """See `format.BodyReader`."""
        at = 0
        if not self._begun:
            at = len(text) - len(text.lstrip(_SPACE))
            if at == len(text):
                return None
            self._begun = True
            self._is_object = text[at] == "{"
        end = self._span.push(text, at) if self._is_object else None
        calls.arguments(text[at:end])
        if end is not None:
            calls.end()
        return end

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`; without arguments, they are empty."""
        if not self._begun:
            calls.arguments("{}")
            calls.end()
        elif not self._is_object:
            calls.end()


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedError
    return value


def _arguments(value: Any) -> str:
    if value is None:
        return "{}"
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise MalformedError
    return json.dumps(value, ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    value = _parsed(text)
    if not isinstance(value, dict):
        raise MalformedError
    return cast(dict[str, Any], value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
