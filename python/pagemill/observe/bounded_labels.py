"""Label values that clients choose, at most a fixed number of them."""

from __future__ import annotations

import os
from hashlib import sha256

OTHER = "other"


class BoundedLabels:
    """The first `limit` values keep their names; all others are `OTHER`.

    Processes that share `folder` agree on the values. Two that add the last one at the same time
    may both succeed, so that there can be one more for each process.
    """

    def __init__(self, limit: int, folder: str = "") -> None:
        """`folder`, which is created, holds a file for each value; "" for a single process."""
        self._limit = limit
        self._folder = folder
        self._known: set[tuple[str, ...]] = set()
        self._files: set[str] = set()
        if folder:
            os.makedirs(folder, exist_ok=True)

    def of(self, *values: str) -> tuple[str, ...]:
        """The values of the labels for `values`."""
        if values in self._known or self._add(values):
            return values
        return (OTHER,) * len(values)

    def _add(self, values: tuple[str, ...]) -> bool:
        if self._folder:
            return self._add_shared(values)
        if len(self._known) >= self._limit:
            return False
        self._known.add(values)
        return True

    def _add_shared(self, values: tuple[str, ...]) -> bool:
        name = sha256(repr(values).encode()).hexdigest()
        if name not in self._files:
            if len(self._files) < self._limit:  # files stay, so a full folder need not be read
                self._files = set(os.listdir(self._folder))
            if name not in self._files and len(self._files) >= self._limit:
                return False
            with open(os.path.join(self._folder, name), "wb"):
                self._files.add(name)
        self._known.add(values)
        return True
