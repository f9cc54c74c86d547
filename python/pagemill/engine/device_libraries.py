"""Libraries of a device's vendor that pip installed, where no loader looks for them.

A plugin opens them by their names. A process that has opened one by its path finds it by its name.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
from pathlib import Path

# By vendor: the package whose folders have a folder `lib`, and what to open there.
_LIBRARIES = {"cuda": ("nvidia", ("libcublasLt.so.*", "libnccl.so.*"))}
_LOGGER = logging.getLogger("pagemill.engine")


def open_libraries(vendor: str) -> None:
    """Opens the installed libraries that the plugin of this vendor may use; there may be none."""
    if vendor not in _LIBRARIES:
        return
    package, names = _LIBRARIES[vendor]
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        for name in names:
            for path in sorted(Path(folder).glob(f"*/lib/{name}")):
                _open(path)


def _open(path: Path) -> None:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        _LOGGER.warning("%s is not used: %s", path, error)
