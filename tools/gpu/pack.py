"""What `tools/gpu:prepare` has packed, unpacked."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tools.gpu.tree import VERSION, headers_digest

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class PackError(RuntimeError):
    """There is no usable pack; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Pack:
    """`tiny` are the names of models in `folder`/tiny."""

    folder: Path
    tiny: tuple[str, ...]

    @property
    def plugin(self) -> Path:
        """The device plugin."""
        return self.folder / "plugin.so"


def unpack(path: Path, folder: Path) -> Pack:
    """The pack in the file or folder `path`; a file is unpacked into `folder`.

    Raises:
        PackError: it is not there, or belongs to another state of this tree or to another Python.
    """
    again = "make it with `./bazelw run //tools/gpu:prepare`"
    if not path.exists():
        raise PackError(f"there is no pack {path}: {again}")
    if path.is_file():
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        path = folder
    described = json.loads((path / "pack.json").read_text())
    if (described["version"], described["headers"]) != (VERSION, headers_digest()):
        raise PackError(f"the pack belongs to another state of this tree: {again}")
    if described["python"] != PYTHON:
        raise PackError(f"the pack is for Python {described['python']}, and this is {PYTHON}")
    return Pack(path, tuple(described["tiny"]))
