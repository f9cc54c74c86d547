"""Arguments written as lines, each a name and a value: `city: Paris`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pagemill.render.formats.format import CallWriter, WholeBody
from pagemill.render.formats.typed_values import as_json, parameter, type_names


@dataclass(frozen=True)
class LinePairs:
    """What is between two pairs, and between name and value."""

    between: str = "\n"
    colon: str = ":"

    def __call__(self) -> LinePairsReader:
        """A reader of such arguments."""
        return LinePairsReader(self)


class LinePairsReader(WholeBody):
    """Reads the arguments of a call whose name is known, up to a marker."""

    def __init__(self, shape: LinePairs) -> None:
        """Begins with no text."""
        super().__init__()
        self._shape = shape

    def close(self, calls: CallWriter) -> None:
        """See `format.BodyReader`. Lines that are no pair are dropped."""
        pairs: dict[str, str] = {}
        for line in self.text.split(self._shape.between):
            key, colon, value = line.partition(self._shape.colon)
            if colon and key.strip():
                types = type_names(parameter(calls.schema, key.strip()))
                pairs[key.strip()] = as_json(value.strip(), types)
        fields = (f"{json.dumps(key)}: {value}" for key, value in pairs.items())
        calls.arguments("{" + ", ".join(fields) + "}")
        calls.end()
