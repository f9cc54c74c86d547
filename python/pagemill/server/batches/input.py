"""Lines of a batch's files: its requests, checked before the first one is sent, and the answers
that an earlier run has left."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from pagemill.server.batch import BatchRequest, LineError, read_line
from pagemill.server.protocol.batch import BatchProblem

_MOST_PROBLEMS = 20
_BUFFER_BYTES = 2**20


class Limits(NamedTuple):
    """Of a file of requests."""

    lines: int
    line_bytes: int


def check_input(path: Path, endpoint: str, limits: Limits) -> tuple[int, list[BatchProblem]]:
    """How many requests for `endpoint` the file has, and the first of what is wrong with it."""
    seen: set[str] = set()
    problems: list[BatchProblem] = []
    with path.open("rb", _BUFFER_BYTES) as file:
        for number, line in _lines(file, limits.line_bytes):
            try:
                _check_line(line, endpoint, limits, seen)
            except LineError as error:
                message = f"Line {number}: {error.reason}"
                problems.append(BatchProblem(error.code, message, number))
            if len(problems) >= _MOST_PROBLEMS:
                break
    if not seen and not problems:
        problems.append(BatchProblem("empty_file", "The file has no requests."))
    return len(seen), problems


def requests(path: Path, answered: Container[str]) -> Iterator[BatchRequest]:
    """The requests of a file that was checked, without those that are `answered`."""
    with path.open("rb", _BUFFER_BYTES) as file:
        for line in file:
            if line.strip():
                request = read_line(line, set())
                if request.custom_id not in answered:
                    yield request


class _AnswerLine(msgspec.Struct):
    custom_id: str


def answered(path: Path) -> tuple[set[str], int]:
    """Which requests a file of answers has, and how many bytes they are: the last line may be
    incomplete."""
    found: set[str] = set()
    size = 0
    decode = msgspec.json.Decoder(_AnswerLine).decode
    with path.open("rb", _BUFFER_BYTES) as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                found.add(decode(line).custom_id)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            size += len(line)
    return found, size


def _lines(file: BinaryIO, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Numbers of lines, and the lines that are not blank; no more than `most_bytes` + 1 of one."""
    number = 0
    while line := file.readline(most_bytes + 1):
        number += 1
        yield number, line
        while len(line) > most_bytes and not line.endswith(b"\n"):
            line = file.readline(most_bytes + 1)


def _check_line(line: bytes, endpoint: str, limits: Limits, seen: set[str]) -> None:
    """Raises a LineError unless the line is blank or a request."""
    if not line.strip():
        return
    if len(line) > limits.line_bytes:
        reason = f"it is longer than {limits.line_bytes} bytes (--max-body-bytes)."
        raise LineError("line_too_long", reason)
    if len(seen) >= limits.lines:
        reason = f"a batch has at most {limits.lines} requests (--batch-max-lines)."
        raise LineError("too_many_requests", reason)
    request = read_line(line, seen)
    if request.url != endpoint:
        reason = f"`url` is {request.url[:100]!r}, but the batch is for {endpoint}."
        raise LineError("mismatched_url", reason, request.custom_id)
