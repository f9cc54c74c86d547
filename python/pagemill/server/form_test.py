"""Forms with a file: in pieces of any size, not well-formed, and too large."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from pagemill.server import form
from pagemill.server.errors import ApiError
from pagemill.server.form import FileLimit, read_form

TYPE = "multipart/form-data; boundary=xyz"
FILE = bytes(range(256)) * 20 + b"\r\n--xy\r\n--xyy\r\n"


def part(name: str, content: bytes, more: str = "") -> bytes:
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + content + b"\r\n"


END = b"--xyz--\r\n"
GOOD = part("file", FILE, '; filename="a b.jsonl"') + part("purpose", b"batch") + END


class Sink:
    def __init__(self) -> None:
        self.begun = 0
        self.filename: str | None = None
        self.content = b""

    async def begin(self, filename: str | None) -> None:
        self.begun += 1
        self.filename = filename

    async def write(self, data: bytes) -> None:
        assert self.begun == 1
        self.content += data


def read(
    pieces: Sequence[bytes], content_type: str = TYPE, limit: int = 10_000, length: int = 0
) -> tuple[dict[str, Any], Sink]:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages.append({"type": "http.request", "body": b""})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(length).encode()),
    ]
    request = Request({"type": "http", "headers": headers}, receive)
    sink = Sink()
    return asyncio.run(read_form(request, FileLimit(limit, "--flag"), sink, 1.0)), sink


def test_pieces_of_any_size() -> None:
    rng = random.Random(5)
    for most in (1, 2, 3, 7, 64, 100_000):
        pieces: list[bytes] = []
        rest = GOOD
        while rest:
            size = rng.randint(1, most)
            pieces.append(rest[:size])
            rest = rest[size:]
        fields, sink = read(pieces)
        assert fields == {"file": sink, "purpose": "batch"}
        assert (sink.filename, sink.content) == ("a b.jsonl", FILE)


def test_objects_and_forms_without_a_file() -> None:
    fields, sink = read([part("a[b]", b"1") + part("a[c]", b"2") + part("d", "é".encode()) + END])
    assert fields == {"a": {"b": "1", "c": "2"}, "d": "é"} and not sink.begun


def test_lists_and_files_without_a_name() -> None:
    fields, sink = read([part("a[]", b"1") + part("file", b"x") + part("a[]", b"2") + END])
    assert fields == {"a": ["1", "2"], "file": sink}
    assert (sink.begun, sink.filename, sink.content) == (1, None, b"x")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "ends before"),
        (GOOD[:-8], "ends before"),
        (b"{}", "not a valid form"),
        (part("file", b"a") * 2 + END, "more than one"),
        (part("a", b"\xff") + END, "UTF-8"),
        (part("a", b"x" * 5000) + END, "too long"),
        (part("a", b"x") * 33 + END, "more than 32"),
        (part("a", b"x") + part("a[b]", b"x") + END, "several kinds"),
        (part("a[]", b"x") + part("a[b]", b"x") + END, "several kinds"),
        (part("", b"x") + END, "no name"),
        (b"--xyz\r\n" + b"A: b\r\n" * 100 + b"\r\n", "not a valid form"),
        (b"--xyz\r\n" + b"A" * 100_000, "not a valid form"),
    ],
)
def test_what_is_not_well_formed(content: bytes, sentence: str) -> None:
    with pytest.raises(ApiError) as error:
        read([content])
    assert error.value.status == 400 and sentence in error.value.message


def test_what_is_too_large() -> None:
    many = part("file", b"x" * 10_001) + END
    for pieces, length in (([many], 0), ([], 1_000_000), ([part("a", b"")] * 5000, 0)):
        with pytest.raises(ApiError) as error:
            read(pieces, length=length)
        assert error.value.status in (400, 413), error.value.message
    with pytest.raises(ApiError, match="--flag"):
        read([many])


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data"])
def test_other_types(content_type: str) -> None:
    with pytest.raises(ApiError, match="multipart/form-data with a boundary"):
        read([GOOD], content_type)
    with pytest.raises(ApiError, match="not a valid form"):
        read([GOOD], "multipart/form-data; boundary=" + "x" * 300)


def test_a_client_that_goes_away() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "headers": [(b"content-type", TYPE.encode())]}, receive)
    with pytest.raises(ClientDisconnect):
        asyncio.run(read_form(request, FileLimit(100, "--flag"), Sink(), 1.0))


def test_a_client_that_sends_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it never pauses for long."""
    monkeypatch.setattr(form, "LEAST_BYTES_PER_S", 1000)

    async def received(pause_s: float, size: int, patience_s: float = 0.1) -> int:
        left = GOOD
        num_pieces = 0

        async def receive() -> dict[str, Any]:
            nonlocal left, num_pieces
            await asyncio.sleep(pause_s)
            num_pieces += 1
            piece, left = left[:size], left[size:]
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        request = Request({"type": "http", "headers": [(b"content-type", TYPE.encode())]}, receive)
        try:
            await read_form(request, FileLimit(10_000, "--flag"), Sink(), patience_s)
        except ApiError as error:
            assert error.status == 408 and "more slowly than 1000 bytes a second" in error.message
            assert num_pieces * pause_s < 0.3
            return 408
        return 200

    assert asyncio.run(received(0.01, 1)) == 408
    assert asyncio.run(received(0.01, 500, patience_s=60)) == 200
    assert asyncio.run(received(10, 500)) == 408
