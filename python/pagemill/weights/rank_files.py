"""Checkpoints that were saved by the ranks of a server, as Grok-2's: files `<name>-TP-<rank>` hold
that rank's part of some matrices, of w1 and w3 its rows and of w2 its columns; files
`<name>-TP-common` hold whole tensors.

Parts are not joined: rank 3's part of `x.weight` is the tensor `x.rank3.weight`, which layers use
where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation

_FILE = re.compile(r".+-TP-(\d{3}|common)\.safetensors")
_COMMON = "common"
_MAX_RANKS = 256

Read = Callable[[Path], Mapping[str, TensorLocation]]


def read_rank_files(directory: Path, read: Read) -> dict[str, TensorLocation] | None:
    """The tensors of such a checkpoint, whose files `read` reads; None if `directory` has none.

    Raises:
        WeightsError: a file is missing, or a tensor is in two files.
    """
    files: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        if (match := _FILE.fullmatch(path.name)) is not None:
            files.setdefault(match[1], []).append(path)
    if not files:
        return None
    whole = _read_all(files.pop(_COMMON, []), read)
    ranks = sorted(files)
    if not 0 < len(ranks) <= _MAX_RANKS or [int(rank) for rank in ranks] != [*range(len(ranks))]:
        raise WeightsError(
            f"{directory} has files of the ranks {', '.join(ranks[:8]) or 'none'}, not of 0, 1, ..."
            f" up to {_MAX_RANKS}; download the others"
        )
    parts = [_read_all(files[rank], read) for rank in ranks]
    for rank, own in enumerate(parts):
        if differing := own.keys() ^ parts[0].keys() or own.keys() & whole.keys():
            raise WeightsError(
                f"{directory}: {shown(min(differing))} is not in the files of each rank alone, see"
                f" those of rank {rank}; download them again"
            )
    tensors = dict(whole)
    for rank, own in enumerate(parts):
        for name, location in own.items():
            module, _, kind = name.rpartition(".")
            renamed = f"{module}.rank{rank}.{kind}"
            tensors[renamed] = replace(location, name=renamed)
    return tensors


def _read_all(paths: list[Path], read: Read) -> dict[str, TensorLocation]:
    tensors: dict[str, TensorLocation] = {}
    for path in paths:
        found = read(path)
        if both := found.keys() & tensors.keys():
            raise WeightsError(f"{path}: {shown(min(both))} is in another file, too")
        tensors |= found
    return tensors
