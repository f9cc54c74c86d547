"""Arguments written as pairs: `{city:<|"|>Paris<|"|>,days:2,at:{x:1},tags:[<|"|>a<|"|>]}`.

Within them, strings and keys in JSON's quotes are read, too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from pagemill.render.formats.format import MAX_BODY_CHARS, CallWriter, MalformedError

_MAX_DEPTH = 64
_IN_JSON = re.compile(r'["\\\x00-\x1f]')
_BEFORE_VALUE = frozenset(":,[{(")
_DECODER = json.JSONDecoder()
_SCALAR = re.compile(r"[^,{}\[\]()]*")


@dataclass(frozen=True)
class PairsShape:
    """`quote`: what is written before and after a string."""

    quote: str

    def __call__(self) -> PairsReader:
        """A reader of such arguments."""
        return PairsReader(self.quote)


class PairsReader:
    """Reads the arguments of a call whose name is known. Implements `format.BodyReader`. They go
    out when they are complete."""

    def __init__(self, quote: str) -> None:
        """`quote`: see `PairsShape`."""
        self._quote = quote
        prefix = quote.partition('"')[0] if '"' in quote else ""
        json_quote = rf'(?<!{re.escape(prefix)})"' if prefix else '"'
        self._pattern = re.compile(rf"{re.escape(quote)}|[{{}}\[\]()]|{json_quote}")
        self._kept = ""
        self._scanned = 0
        self._depth = 0
        self._in_json = False  # in a string in JSON's quotes
        self.in_string = False

    def push(self, text: str, calls: CallWriter) -> int | None:
        """See `format.BodyReader`."""
        before = len(self._kept)
        room = MAX_BODY_CHARS - before
        self._kept += text[:room]
        while found := self._next():
            self._scanned = found.end()
            char = found[0]
            if self._in_json:
                self._scanned += char == "\\"  # and what it escapes
                self._in_json = self.in_string = char == "\\"
            elif char == self._quote:
                self.in_string = not self.in_string
            elif char == '"':
                if not self.in_string and self._is_value(found.start()):
                    self._in_json = self.in_string = True
            elif not self.in_string:
                self._depth += 1 if char in "{[(" else -1
                if self._depth == 0:
                    self._write(self._kept[: self._scanned], self._scanned - before, calls)
                    return self._scanned - before
        if len(text) > room:
            raise MalformedError(room)
        # The beginning of a quote may be at the end.
        self._scanned = max(self._scanned, len(self._kept) - len(self._quote) + 1)
        return None

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`."""
        del calls
        raise MalformedError

    def _next(self) -> re.Match[str] | None:
        """What comes next that says where the arguments end."""
        pattern = _IN_JSON if self._in_json else self._pattern
        return pattern.search(self._kept, self._scanned)

    def _is_value(self, at: int) -> bool:
        """True if a value or a key may begin at this place."""
        while at > 0 and self._kept[at - 1].isspace():
            at -= 1
        return self._kept[at - 1 : at] in _BEFORE_VALUE

    def _write(self, text: str, end: int, calls: CallWriter) -> None:
        try:
            arguments = _Reader(text.strip(), self._quote).read()
        except MalformedError:
            raise MalformedError(end) from None
        calls.arguments(json.dumps(arguments, ensure_ascii=False))
        calls.end()


class _Reader:
    """Reads a complete text."""

    def __init__(self, text: str, quote: str) -> None:
        self._text = text
        self._quote = quote
        self._at = 0

    def read(self) -> dict[str, Any]:
        value = self._value(0)
        if not isinstance(value, dict) or self._at != len(self._text):
            raise MalformedError
        return cast(dict[str, Any], value)

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise MalformedError
        self._space()
        if self._takes(self._quote):
            return self._string()
        if self._takes("{", "("):
            return self._object(depth)
        if self._takes("["):
            return self._array(depth)
        if (text := self._json_string()) is not None:
            return text
        found = _SCALAR.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return _scalar(found[0].strip())

    def _object(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not self._takes("}", ")"):
            self._space()
            key = self._json_string()
            colon = self._text.find(":", self._at)
            if colon < 0:
                raise MalformedError
            if key is None:
                key = self._text[self._at : colon].strip().removeprefix(self._quote)
                key = key.removesuffix(self._quote).strip("\"'")
            self._at = colon + 1
            fields[key] = self._value(depth + 1)
            self._space()
            self._takes(",")
            self._space()
        return fields

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._space()
        while not self._takes("]"):
            before = self._at
            items.append(self._value(depth + 1))
            self._space()
            self._takes(",")
            self._space()
            if self._at == before:
                raise MalformedError
        return items

    def _string(self) -> str:
        end = self._text.find(self._quote, self._at)
        if end < 0:
            raise MalformedError
        begin, self._at = self._at, end + len(self._quote)
        return self._text[begin:end]

    def _json_string(self) -> str | None:
        """A string in JSON's quotes, if one is here."""
        if not self._text.startswith('"', self._at):
            return None
        try:
            text, self._at = _DECODER.raw_decode(self._text, self._at)
        except ValueError:
            return None
        return text

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _takes(self, *texts: str) -> bool:
        for text in texts:
            if self._text.startswith(text, self._at):
                self._at += len(text)
                return True
        return False


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
