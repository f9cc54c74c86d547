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


def installed_libraries(vendor: str) -> list[Path]:
    """Those that the plugin of this vendor may use; there may be none."""
    if vendor not in _LIBRARIES:
        return []
    package, names = _LIBRARIES[vendor]
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    found = (folder.glob(f"*/lib/{name}") for folder in folders for name in names)
    return [path for paths in found for path in sorted(paths)]


def open_libraries(vendor: str) -> None:
    """Opens what is installed."""
    for path in installed_libraries(vendor):
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            _LOGGER.warning("%s is not used: %s", path, error)
