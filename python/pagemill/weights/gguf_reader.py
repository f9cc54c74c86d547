"""Typed access to the metadata of a GGUF file's architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation

_MAX_LAYERS = 2**16


class GgufReader:
    """Reads `<architecture>.<key>`. A key that may differ by layer is a number, or one for each
    layer with 0 where it does not apply."""

    def __init__(self, gguf: GgufFile, architecture: str) -> None:
        self.gguf = gguf
        self.architecture = architecture

    def find(self, key: str) -> Any:
        """The value as it is stored; None if there is none."""
        return self.gguf.metadata.get(f"{self.architecture}.{key}")

    def error(self, what: str) -> WeightsError:
        """An error of this file."""
        return WeightsError(f"{self.gguf.path}: {what}")

    def find_int(self, key: str) -> int | None:
        """A size or a count, greater than 0: that of all layers that have one.

        Raises:
            WeightsError: it is no such number, or layers differ.
        """
        value: object = self.find(key)
        if isinstance(value, list):
            entries = [entry for entry in cast("list[object]", value) if entry != 0]
            if not entries or any(entry != entries[0] for entry in entries):
                raise self._wrong(key, cast("object", value))
            value = entries[0]
        if value is None:
            return None
        if type(value) is not int or value < 1:
            raise self._wrong(key, value)
        return value

    def integer(self, key: str) -> int:
        """As `find_int`, of a key that must be there."""
        value = self.find_int(key)
        if value is None:
            raise self.error(f"the key {self.architecture}.{key} is missing")
        return value

    def by_layer(self, key: str) -> list[int]:
        """The size or count of each layer, 0 where it does not apply; one number is that of all.

        Raises:
            WeightsError: it is missing, or not a number for each layer.
        """
        value: object = self.find(key)
        layers = self.layers()
        entries = cast("list[object]", value) if isinstance(value, list) else [value] * layers
        counts = [entry for entry in entries if type(entry) is int and entry >= 0]
        if len(counts) != len(entries) or len(counts) != layers:
            raise self._wrong(key, cast("object", value))
        return counts

    def layers(self) -> int:
        """The number of layers.

        Raises:
            WeightsError: it is missing, or more than any model has.
        """
        count = self.integer("block_count")
        if count > _MAX_LAYERS:
            raise self.error(
                f"{self.architecture}.block_count is {count}; at most {_MAX_LAYERS} are supported"
            )
        return count

    def number(self, key: str, default: float) -> float:
        """A number; `default` if there is none."""
        value = self.find(key)
        if value is not None and type(value) not in (int, float):
            raise self._wrong(key, value)
        return default if value is None else float(value)

    def find_str(self, key: str) -> str | None:
        """A text; None if there is none."""
        value = self.find(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, value)
        return value

    def layers_with(self, tensor: str) -> Sequence[int]:
        """The numbers of the layers that have `blk.<i>.<tensor>`, ascending."""
        return [i for i in range(self.layers()) if f"blk.{i}.{tensor}" in self.gguf.tensors]

    def tensor(self, name: str) -> TensorLocation | None:
        """The tensor of this stored name."""
        return self.gguf.tensors.get(name)

    def _wrong(self, key: str, value: object) -> WeightsError:
        return self.error(f"{self.architecture}.{key} is {shown(value)}")
