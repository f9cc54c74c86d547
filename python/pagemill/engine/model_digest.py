"""What a model is, in one word: equal for machines that have the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pagemill.runner.build import BuiltModel

_SAMPLES, _SAMPLE_BYTES = 16, 4096  # of each file of weights


def model_digest(ranks: Sequence[BuiltModel]) -> str:
    """Hexadecimal digits of a digest of the programs of all ranks and of samples of their files,
    wherever a machine has these."""
    digest = hashlib.sha256()
    files: dict[str, str] = {}
    for rank in ranks:
        for line in rank.program_text.splitlines():
            word, _, rest = line.partition(" ")
            number, _, path = rest.partition(" ")
            if word == "file" and Path(path).is_file():
                if path not in files:
                    files[path] = _file_digest(Path(path))
                line = f"file {number} {files[path]}"
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    """Of a file's size and some places of it: other weights of one shape differ in all of them."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for i in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
