"""The records of a data set's file: JSON objects, one a line or in an array, or rows of CSV."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pagemill.config import ConfigError

MAX_RECORD_BYTES = 2**20
MAX_BYTES = 2**30
"""That are read of a file."""

_CHUNK_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Record:
    """One record, none of whose `values` have been checked."""

    values: dict[str, Any]
    file: str
    place: str  # such as "line 3"

    def error(self, what: str) -> ConfigError:
        """Returns the error that names the record."""
        return _error(self.file, self.place, what)


def read_records(path: str) -> Iterator[Record]:
    """Yields the records of a file as they are read. What is behind the last record that the caller
    takes is not looked at.

    Raises:
      ConfigError: the file cannot be read, or is not a data set up to the next record.
    """
    try:
        with Path(path).open("rb") as file:
            start = file.read(64).removeprefix(codecs.BOM_UTF8).lstrip()
            file.seek(0)
            if start.startswith(b"PAR1"):
                raise ConfigError(
                    f"--dataset {path}: Parquet is not read; write it as lines of JSON"
                    " (`to_json` of `datasets` or pandas)"
                )
            if path.endswith(".csv"):
                yield from _rows(file, path)
            elif start.startswith(b"["):
                yield from _entries(file, path)
            else:
                yield from _lines(file, path)
    except OSError as error:
        raise ConfigError(f"--dataset {path}: {error.strerror or error}") from None


def _lines(file: BinaryIO, path: str) -> Iterator[Record]:
    for place, line in _bounded_lines(file, path):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise _error(path, place, "it is not JSON") from None
            yield _record(value, path, place)


def _rows(file: BinaryIO, path: str) -> Iterator[Record]:
    """Cells may have line breaks, so the place of a row is that of its last line."""
    place = "line 1"

    def texts() -> Iterator[str]:
        nonlocal place
        for place, line in _bounded_lines(file, path):
            yield line.decode("utf-8-sig" if place == "line 1" else "utf-8", "replace")

    try:
        for row in csv.DictReader(texts()):
            # Cells without a title are under None.
            yield Record({name: row[name] for name in row if isinstance(name, str)}, path, place)
    except csv.Error as error:
        raise _error(path, place, f"it is not CSV: {error}") from None


def _bounded_lines(file: BinaryIO, path: str) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := file.readline(MAX_RECORD_BYTES + 1):
        number += 1
        place = f"line {number}"
        if len(line) > MAX_RECORD_BYTES:
            raise _error(path, place, "longer than 1 MiB")
        _check_size(file.tell(), path, place)
        yield place, line


def _entries(file: BinaryIO, path: str) -> Iterator[Record]:
    """Reads an array entry by entry: published files are larger than what is needed of them."""
    decoder = json.JSONDecoder()
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace")
    buffer = text.read(_CHUNK_BYTES).lstrip()[1:]
    number, ended = 1, False
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        place = f"entry {number}"
        if buffer.startswith("]"):
            return
        try:
            value, end = decoder.raw_decode(buffer)
        except (ValueError, RecursionError):
            if ended:
                raise _error(path, place, "it is not JSON") from None
            if len(buffer) > MAX_RECORD_BYTES:
                raise _error(path, place, "it is not JSON, or longer than 1 MiB") from None
            # Twice as much each time, so that a long entry is decoded a few times only.
            chunk = text.read(max(_CHUNK_BYTES, len(buffer)))
            ended = not chunk
            buffer += chunk
            _check_size(file.tell(), path, place)
            continue
        yield _record(value, path, place)
        buffer = buffer[end:]
        number += 1


def _record(value: Any, path: str, place: str) -> Record:
    """One without keys for what is not an object."""
    values = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    return Record(values, path, place)


def _check_size(num_bytes: int, path: str, place: str) -> None:
    if num_bytes > MAX_BYTES:
        raise _error(path, place, "more than 1 GiB: lower --num-prompts")


def _error(path: str, place: str, what: str) -> ConfigError:
    return ConfigError(f"--dataset {path}, {place}: {what}")
