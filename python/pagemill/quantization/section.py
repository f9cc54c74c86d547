"""Typed access to `quantization_config`: each field is applied or rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown

_MAX_BLOCK = 2**30  # rows or columns that share a scale


class QuantizationError(WeightsError):
    """A quantization that is not supported; the message names the method, the field and the
    supported values."""


@dataclass(frozen=True, slots=True)
class Section:
    """An object of the configuration of `method`; `path` of it, "" for the outermost."""

    method: str
    entries: Mapping[str, Any] = field(default_factory=dict[str, Any])
    path: str = ""

    def get(self, name: str, default: object = None) -> Any:
        """The value of a field; `default` if there is none."""
        return self.entries.get(name, default)

    def refuse(self, name: str, value: object, supported: str) -> QuantizationError:
        """The error of a field with a value that is not among those `supported`."""
        return QuantizationError(
            f"quantization_config ({self.method}): {self.path}{name} {shown(value)} is not"
            f" supported; supported: {supported}"
        )

    def require(self, name: str, value: object, allowed: Mapping[Any, str]) -> None:
        """Rejects a `value` of a field that is not a key of `allowed`, which maps values to their
        spelling.

        Raises:
            QuantizationError: it is none.
        """
        if value not in list(allowed):  # a list, since the value may be unhashable
            raise self.refuse(name, value, ", ".join(allowed.values()))

    def section(self, name: str) -> Section:
        """The object at `name`, empty if it is absent.

        Raises:
            QuantizationError: it is not an object.
        """
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(name, value, "an object")
        return Section(self.method, cast("Mapping[str, Any]", value or {}), f"{self.path}{name}.")

    def sections(self, name: str) -> list[Section]:
        """The objects in the object at `name`, in order."""
        outer = self.section(name)
        return [outer.section(key) for key in outer.entries]

    def strings(self, name: str, default: Sequence[str] = ()) -> Sequence[str]:
        """The names and patterns of modules at `name`; `default` if it is absent.

        Raises:
            QuantizationError: it is not a list of strings.
        """
        entries = self.get(name)
        if entries is None:
            return default
        listed = cast("list[Any]", entries) if isinstance(entries, list) else [None]
        if not all(isinstance(entry, str) and entry for entry in listed):
            raise self.refuse(name, cast("object", entries), "a list of module names")
        return cast("list[str]", listed)

    def bits(self, name: str, value: object, allowed: Sequence[int]) -> int:
        """The bits of a packed integer.

        Raises:
            QuantizationError: they are not among those `allowed`.
        """
        if type(value) is not int or value not in allowed:
            raise self.refuse(name, value, " and ".join(str(bits) for bits in allowed))
        return value

    def group(self, name: str, value: object) -> int | None:
        """Columns that share a scale; None, all of a row, for -1.

        Raises:
            QuantizationError: they are not a multiple of 32.
        """
        if type(value) is int and value == -1:
            return None
        if type(value) is not int or not 32 <= value <= _MAX_BLOCK or value % 32:
            raise self.refuse(name, value, "multiples of 32, and -1 for whole rows")
        return value

    def block(self, name: str) -> tuple[int, int] | None:
        """Rows and columns of a block, [128, 128] or "128x128"; None if the field is absent.

        Raises:
            QuantizationError: it is not such a pair, or columns are not a multiple of 4.
        """
        value = self.get(name)
        if value is None:
            return None
        parts: object = value.split("x") if isinstance(value, str) else value
        try:
            rows, columns = (int(part) for part in cast("list[Any]", parts))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.refuse(name, value, "two sizes, rows and columns") from error
        if not (1 <= rows <= _MAX_BLOCK and 1 <= columns <= _MAX_BLOCK) or columns % 4:
            raise self.refuse(name, value, "rows of 1 and more, columns a multiple of 4")
        return rows, columns
