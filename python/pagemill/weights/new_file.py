"""A safetensors file that is written here: it appears at its path when it is complete.

header = safetensors_header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
with new_file(path, header, 8) as file:
    file.write(values)
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL = ".partial"
"""The end of names of files that are being written."""
_ALIGNMENT = 64


def safetensors_header(entries: Mapping[str, Any]) -> bytes:
    """What a file begins with that has these `entries`: data lies at a multiple of 64 behind it."""
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


@contextmanager
def new_file(path: Path, header: bytes, size: int) -> Generator[BinaryIO]:
    """A file in the folder of `path`, behind whose `header` `size` bytes are to be written; those
    that are not are zeros, which take no disk space. It is renamed to `path` at the end, and
    removed if there is an exception.

    Raises:
        OSError: the file cannot be written; there is no such folder, for instance.
    """
    handle, name = tempfile.mkstemp(PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "r+b") as file:
            file.write(header)
            file.truncate(len(header) + size)
            file.flush()
            yield file
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
