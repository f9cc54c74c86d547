"""Lists the tests that a BUILD file defines, those of list comprehensions included.

Starlark's grammar is a subset of Python's, so a BUILD file runs as Python: each name that it uses
without defining it stands for an object that records the targets made with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.bazel.starlark import free_names, loads


def defined_tests(package: Path) -> set[str]:
    """The names of the tests in the BUILD.bazel file of the folder `package`.

    A test is a target whose rule has a name that ends with `_test`. A constant that the file loads
    is an empty one here, so targets that are made for each of its elements are not found.

    Raises:
        OSError: the folder has no such file.
    """
    path = package / "BUILD.bazel"
    text = path.read_text("utf-8")
    found: set[str] = set()
    loaded = {name for load in loads(text) for name in load.names}
    unknown = free_names(text) | loaded | {"load"}
    names: dict[str, object] = {name: _Unknown(name, found) for name in unknown}
    exec(compile(text, path, "exec"), names)  # noqa: S102 -- a file of this tree
    return found


class _Unknown:
    """A rule or a constant of another file."""

    def __init__(self, name: str, tests: set[str]) -> None:
        self._is_test = name.endswith("_test")
        self._tests = tests

    def __call__(self, *_: object, **attributes: object) -> list[object]:
        if self._is_test:
            self._tests.add(str(attributes["name"]))
        return []

    def __getitem__(self, key: object) -> _Unknown:
        return self

    def __radd__(self, items: list[object]) -> list[object]:
        return items

    def __iter__(self) -> Iterator[object]:
        return iter(())
