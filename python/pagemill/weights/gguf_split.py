"""GGUF models in several files, as llama.cpp's `gguf-split` makes them: the first has the metadata,
each has some of the tensors, and names end in `-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.json_file import shown

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_MAX_FILES = 1000


def split_names(name: str) -> Sequence[str]:
    """The names of all files of the model whose first file is called `name`.

    >>> split_names("a-00001-of-00002.gguf")
    ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf']
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[2]) != 1 or not 1 <= int(match[3]) <= _MAX_FILES:
        return [name]
    return [f"{match[1]}-{i + 1:05}-of-{match[3]}.gguf" for i in range(int(match[3]))]


def open_model(path: Path) -> GgufFile:
    """Read the headers of the model at `path`, of all its files if there are several.

    Raises:
        WeightsError: a file is corrupt, or is not the first of its model, or the files do not fit
            each other.
        OSError: a file cannot be read.
    """
    first = GgufFile.open(path)
    count = first.metadata.get("split.count", 0)
    if count in (0, 1):
        return first
    names = split_names(path.name)
    if first.metadata.get("split.no") != 0 or len(names) != count:
        raise WeightsError(
            f"{path}: one of {shown(count)} files of a model: give the first, whose name ends in"
            " -00001-of- and the number of files, with the others beside it"
        )
    tensors = dict(first.tensors)
    for number, name in enumerate(names[1:], start=1):
        part = GgufFile.open(path.with_name(name))
        if part.metadata.get("split.no") != number or tensors.keys() & part.tensors.keys():
            raise WeightsError(f"{part.path}: not file {number + 1} of the model of {path}")
        tensors |= part.tensors
    stated = first.metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise WeightsError(
            f"{path}: {shown(stated)} tensors are announced, {len(tensors)} are there"
        )
    return replace(first, tensors=tensors)
