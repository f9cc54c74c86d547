"""The results of a check, in a file that is complete after each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED = "passed"
# What is not run again when a check goes on.
_FINAL = (PASSED, "failed", "refused")


@dataclass(slots=True)
class Result:
    """Of an item. `status`: passed, failed, refused (by the device), ended (at its limit), running,
    or left out; `output` is the end of what it printed, if it did not pass."""

    status: str = "running"
    seconds: float = 0.0
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    output: str = ""


class Results:
    """All results, by the item's name; those of an earlier run of the same file remain."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._items: dict[str, Result] = {}
        if path.exists():
            items = json.loads(path.read_text())["items"]
            self._items = {name: Result(**fields) for name, fields in items.items()}

    def get(self, name: str) -> Result | None:
        """None: the item never ran."""
        return self._items.get(name)

    def is_final(self, name: str) -> bool:
        """Whether the item need not run again."""
        found = self._items.get(name)
        return found is not None and found.status in _FINAL

    def forget(self, names: Collection[str]) -> None:
        """Remove the results of these items."""
        self._items = {key: value for key, value in self._items.items() if key not in names}

    def put(self, name: str, result: Result) -> None:
        """Set the item's result and write the file."""
        self._items[name] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"items": {key: asdict(value) for key, value in self._items.items()}})
        partial = self._path.with_suffix(".partial")
        partial.write_text(text + "\n")
        os.replace(partial, self._path)

    def records(self, what: str, stage: str = "") -> list[dict[str, Any]]:
        """Those of all items of a stage, or of all stages, that say `what`."""
        return [
            record
            for name, result in self._items.items()
            if name.startswith(stage)
            for record in result.records
            if record["what"] == what
        ]

    def by_status(self, stage: str) -> dict[str, list[str]]:
        """The names of a stage's items by what became of them."""
        found: dict[str, list[str]] = {}
        for name, result in self._items.items():
            if name.startswith(stage + "/"):
                found.setdefault(result.status, []).append(name.removeprefix(stage + "/"))
        return found

    def stages(self) -> list[str]:
        """In the order in which they began."""
        return list(dict.fromkeys(name.split("/")[0] for name in self._items))
