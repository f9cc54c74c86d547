"""Whether what a family reads of a checkpoint and of its configuration matters to its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pagemill.models.base import ModelConfigError
from pagemill.models.table import model_class
from pagemill.weights.errors import WeightsError

LEAST = 10  # tolerances that results must move by

Distance = Callable[[Path], float]
"""How far the results of the checkpoint at a path are from the right ones, in tolerances."""


def unmoved_tensors(
    path: Path, changed: Path, distance: Distance, skips: Callable[[str], bool]
) -> list[str]:
    """The tensors of `path` that move nothing if they are zero, except those that `skips` names.
    `changed` gets a checkpoint, in which they are zero one after the other."""
    (changed / "config.json").write_text((path / "config.json").read_text())
    stored = bytearray((path / "model.safetensors").read_bytes())
    begin = 8 + int.from_bytes(stored[:8], "little")  # of the data
    unmoved: list[str] = []
    for name, tensor in json.loads(stored[8:begin]).items():
        if name == "__metadata__" or skips(name):
            continue
        data = slice(*(begin + offset for offset in tensor["data_offsets"]))
        kept = stored[data]
        stored[data] = bytes(len(kept))
        (changed / "model.safetensors").write_bytes(stored)
        stored[data] = kept
        if distance(changed) < LEAST:
            unmoved.append(name)
    return unmoved


def unmoved_fields(
    path: Path, changed: Path, distance: Distance, neutral: Collection[str]
) -> list[str]:
    """The fields of the configuration that the family reads, and that neither move results nor are
    refused with another value, except the `neutral` ones."""
    config = json.loads((path / "config.json").read_text())
    reads = _Reads(config)
    model_class(config["architectures"][0]).from_config(reads)
    (changed / "model.safetensors").symlink_to(path / "model.safetensors")
    unmoved: list[str] = []
    for key in sorted((reads.read & config.keys()) - set(neutral)):
        other = config | {key: _other(config[key])}
        (changed / "config.json").write_text(json.dumps(other))
        try:
            moved = distance(changed) >= LEAST
        except (ModelConfigError, WeightsError):
            continue
        if not moved:
            unmoved.append(f"{key}={config[key]!r:.40} as {other[key]!r:.40}")
    return unmoved


class _Reads(Mapping[str, Any]):
    """A configuration that notes which of its keys are read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self._config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def _other(value: Any) -> Any:
    """A value of the same type that should change results, or be refused."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.7 + 0.1
        case str():
            return "relu" if value != "relu" else "silu"
        case list():
            if all(isinstance(entry, int | list) for entry in value):
                return [_other(entry) for entry in value]
            return [*value[1:], value[0]]
        case dict():
            return {
                key: _other(entry) if key != "rope_type" else entry for key, entry in value.items()
            }
        case _:
            return 3
