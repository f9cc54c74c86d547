"""Finds the real source tree from inside a test and lists its text files.

A filegroup in every package would be a burden on each of them and would miss a package without one.
The runfiles have MODULE.bazel as a link into the tree, and the sandbox lets a test read the tree
through it.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(os.path.realpath("MODULE.bazel")).parent

# Generated and fetched folders, and those that are not part of the project. `.git` is a file in a
# linked worktree.
_SKIPPED = {
    ".git",
    ".hypothesis",
    ".ruff_cache",
    ".venv",
    "MODULE.bazel.lock",
    "__pycache__",
    "node_modules",
}
_BINARY_SUFFIXES = {".png", ".jpg", ".ico", ".gguf", ".safetensors", ".gz", ".pyc", ".so", ".wav"}


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """A text file of the tree."""

    path: str  # from the root, with slashes
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))


def source_files(*suffixes: str, under: str = "") -> Iterator[SourceFile]:
    """Yields the text files below `under` whose name ends with one of `suffixes` (all if none)."""
    for folder, folders, names in os.walk(ROOT / under):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not name.startswith("bazel-")
        )
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if name in _SKIPPED or path.is_symlink() or path.suffix in _BINARY_SUFFIXES:
                continue
            if suffixes and not name.endswith(suffixes):
                continue
            yield SourceFile(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
