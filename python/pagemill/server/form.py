"""Bodies of type multipart/form-data, with one file that is passed on while it is read."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, NamedTuple, Protocol, cast

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from pagemill.server.errors import ApiError, invalid_body

FILE = "file"
"""The name of the part that is a file."""
LEAST_BYTES_PER_S = 16 * 1024
"""At which forms have to come, on average."""
_MAX_FIELDS = 32
_MAX_FIELD_BYTES = 4096
# What a form has beside its file: fields, boundaries, headers of parts.
_MAX_OTHER_BYTES = 128 * 1024
_NESTED = re.compile(r"(\w+)\[(\w*)\]")


class FileSink(Protocol):
    """Where the file goes. `filename` None: its part has no name, as that of text."""

    async def begin(self, filename: str | None) -> None: ...

    async def write(self, data: bytes) -> None: ...


class FileLimit(NamedTuple):
    """The largest file, and the flag that sets it."""

    max_bytes: int
    flag: str


async def read_form(request: Request, limit: FileLimit, file: FileSink, patience_s: float) -> Any:
    """The fields of the form, with `file` as the field FILE if it has one.

    `a[b]` is the field `b` of the object `a`, and `a[]` an item of the list `a`. All in all the
    form may be waited for `patience_s` longer than it takes at `LEAST_BYTES_PER_S`.

    Raises:
        ApiError: 400 for another content type or a form that is not well-formed, 408 for one that
            comes too slowly, 413 for a file that is too large; what `file` raises.
        ClientDisconnect: the client went away.
    """
    form = _Form(_boundary(request.headers.get("content-type", "")))
    too_large = ApiError(413, f"The file is larger than {limit.max_bytes} bytes ({limit.flag}).")
    if declared_bytes(request) > limit.max_bytes + _MAX_OTHER_BYTES:
        raise too_large
    pace = _Pace(request, patience_s)
    begun, file_bytes, all_bytes = False, 0, 0
    more = True
    while more:
        message = await pace.receive(all_bytes)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body, more = message.get("body", b""), message.get("more_body", False)
        form.feed(body)
        all_bytes += len(body)
        data = form.take_file()
        file_bytes += len(data)
        if file_bytes > limit.max_bytes or all_bytes - file_bytes > _MAX_OTHER_BYTES:
            raise too_large
        if form.has_file and not begun:
            begun = True
            await file.begin(form.filename)
        if data:
            await file.write(data)
    fields = form.end()
    return {**fields, FILE: file} if begun else fields


def declared_bytes(request: Request) -> int:
    """How long the request's body is by its header; 0 if it does not say that."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdigit() else 0


class _Pace:
    """Waits for a client as long as it sends fast enough. What the server does in between takes
    none of its time."""

    def __init__(self, request: Request, patience_s: float) -> None:
        self._request = request
        self._patience_s = patience_s
        self._waited_s = 0.0

    async def receive(self, num_bytes: int) -> Message:
        """The next message, after `num_bytes` have come.

        Raises:
            ApiError: 408: the client is too slow.
        """
        begun = time.monotonic()
        left_s = self._patience_s + num_bytes / LEAST_BYTES_PER_S - self._waited_s
        try:
            async with asyncio.timeout(left_s):
                message = await self._request.receive()
        except TimeoutError:
            raise ApiError(
                408,
                f"The form comes more slowly than {LEAST_BYTES_PER_S} bytes a second, for more than"
                f" {self._patience_s:g} s (--body-timeout).",
            ) from None
        self._waited_s += time.monotonic() - begun
        return message


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise ApiError(
            400,
            "The header Content-Type must be multipart/form-data with a boundary, not"
            f" {content_type[:100]!r}; with curl: -F file=@NAME, and -F FIELD=VALUE for others.",
        )
    return options[b"boundary"]


class _Form:
    """What came of the form. The parser's callbacks have its own types of arguments."""

    def __init__(self, boundary: bytes) -> None:
        self.has_file = False
        self.filename: str | None = None
        self._fields: dict[str, Any] = {}
        self._num_fields = 0
        self._file: list[bytes] = []
        self._is_complete = False
        self._name = ""
        self._is_file = False
        self._text = bytearray()
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise invalid_body(f"The body is not a valid form: {error}") from error

    def feed(self, data: bytes) -> None:
        """Parses the next bytes."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise invalid_body(f"The body is not a valid form: {error}") from error

    def take_file(self) -> bytes:
        """What came of the file since the last call."""
        data = b"".join(self._file)
        self._file.clear()
        return data

    def end(self) -> dict[str, Any]:
        """The fields of the complete form."""
        if not self._is_complete:
            raise invalid_body("The form ends before its last boundary.")
        return self._fields

    def _on_part_begin(self) -> None:
        self._name, self._is_file, self._disposition = "", False, b""
        self._text.clear()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _on_header_end(self) -> None:
        name, value = self._header
        if bytes(name).lower() == b"content-disposition":
            self._disposition = bytes(value)
        name.clear()
        value.clear()

    def _on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or not options.get(b"name"):
            raise invalid_body("A part of the form has no name.")
        self._name = options[b"name"].decode("utf-8", "replace")
        self._is_file = self._name == FILE
        if self._is_file:
            if self.has_file:
                raise invalid_body(f"The form has more than one `{FILE}`.", FILE)
            self.has_file = True
            if b"filename" in options:
                self.filename = options[b"filename"].decode("utf-8", "replace")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file.append(data[start:end])
            return
        self._text.extend(data[start:end])
        if len(self._text) > _MAX_FIELD_BYTES:
            raise invalid_body(f"The field {self._name[:100]!r} is too long.", self._name[:100])

    def _on_part_end(self) -> None:
        if self._is_file:
            return
        self._num_fields += 1
        if self._num_fields > _MAX_FIELDS:
            raise invalid_body(f"The form has more than {_MAX_FIELDS} fields.")
        try:
            text = self._text.decode()
        except UnicodeDecodeError as error:
            raise invalid_body("The form is not valid UTF-8.") from error
        nested = _NESTED.fullmatch(self._name)
        if nested is None:
            self._fields[self._name] = text
            return
        outer, inner = nested[1][:100], nested[2]
        found: object = self._fields.setdefault(outer, {} if inner else [])
        if isinstance(found, dict) and inner:
            cast(dict[str, str], found)[inner] = text
        elif isinstance(found, list) and not inner:
            cast(list[str], found).append(text)
        else:
            raise invalid_body(
                f"The field {outer!r} has values of several kinds: text, a list ({outer}[]) or an"
                f" object ({outer}[name]).",
                outer,
            )

    def _on_end(self) -> None:
        self._is_complete = True
