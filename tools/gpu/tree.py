"""Where the source tree is, and what of it a pack belongs to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

# Not resolved: among the runfiles of Bazel there is what it has built, too.
ROOT = Path(__file__).absolute().parents[2]


def _version() -> str:
    names: dict[str, Any] = {}
    exec((ROOT / "version.bzl").read_text(), {"__builtins__": {}}, names)
    return names["VERSION"]


VERSION = _version()


def headers_digest(root: Path = ROOT) -> str:
    """Of all headers of cc/: the bindings, compiled later, must see those of the library."""
    digest = hashlib.sha256()
    for path in sorted((root / "cc").rglob("*.h")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
