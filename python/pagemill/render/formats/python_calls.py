"""Calls written as Python: `[get_weather(city="Paris", days=2), now()]`."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from pagemill.render.formats.format import MAX_BODY_CHARS, CallWriter, MalformedError

_OUTSIDE = re.compile(r"[\"'()\[\]{},\n]")
_INSIDE = {quote: re.compile(rf"[{quote}\\\n]") for quote in "\"'"}
_NAMES = {"true": True, "false": False, "null": None, "none": None}


class PythonCalls:
    """Reads a list of calls, or with `in_list` False calls behind one another, each on a line of
    its own. Implements `format.BodyReader`. A call goes out when it is complete."""

    def __init__(self, in_list: bool = True) -> None:
        """Begins with no text."""
        self._in_list = in_list
        self._begun = not in_list
        self._kept: list[str] = []
        self._num_kept = 0
        self._depth = 0
        self._quote = ""
        self._escaped = False

    @property
    def in_string(self) -> bool:
        """See `format.BodyReader`."""
        return bool(self._quote)

    def push(self, text: str, calls: CallWriter) -> int | None:
        """See `format.BodyReader`."""
        at = 0
        while at < len(text):
            if not self._begun:
                self._begun = text[at] == "["
                if not self._begun and not text[at].isspace():
                    raise MalformedError(at)
                at += 1
                continue
            if self._escaped:
                self._escaped = False
                self._keep(text, at, at + 1)
                at += 1
                continue
            found = (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, at)
            end = found.end() if found is not None else len(text)
            self._keep(text, at, end)
            if found is None:
                return None
            at = end
            try:
                if self._is_last(found[0], calls):
                    return at
            except MalformedError:
                raise MalformedError(at) from None
        return None

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`; the last bracket may be missing."""
        del calls
        if "".join(self._kept).strip():
            raise MalformedError

    def _keep(self, text: str, begin: int, end: int) -> None:
        room = MAX_BODY_CHARS - self._num_kept
        if end - begin > room:
            raise MalformedError(begin + room)
        self._num_kept += end - begin
        self._kept.append(text[begin:end])

    def _is_last(self, char: str, calls: CallWriter) -> bool:
        if self._quote:
            self._escaped = char == "\\"
            if not self._escaped:  # a line break ends a string that the model forgot to end
                self._quote = ""
        elif char in "\"'":
            self._quote = char
        elif char in "([{":
            self._depth += 1
        elif char in ")]}":
            self._depth -= 1
            if self._depth == 0:
                self._write("".join(self._kept), calls)
                self._kept, self._num_kept = [], 0
            return self._ends_list(char)
        elif self._depth == 0 and char in ",\n":
            if "".join(self._kept).strip(" \t\r\n,"):
                raise MalformedError
            self._kept, self._num_kept = [], 0
        return False

    def _ends_list(self, char: str) -> bool:
        if self._depth >= 0:
            return False
        if char != "]" or not self._in_list or "".join(self._kept).strip(" \t\r\n,]"):
            raise MalformedError
        return True

    def _write(self, text: str, calls: CallWriter) -> None:
        name, arguments = _read(text.strip(" \t\r\n,"))
        calls.start(name)
        calls.arguments(json.dumps(arguments, ensure_ascii=False))
        calls.end()


def _read(text: str) -> tuple[str, dict[str, Any]]:
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise MalformedError
        arguments = {key.arg: _value(key.value) for key in call.keywords if key.arg is not None}
        if len(arguments) != len(call.keywords):
            raise MalformedError
        return _dotted(call.func), arguments
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError from error


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise MalformedError


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None):
            return node.value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case _:
            raise MalformedError


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise MalformedError
