"""Can this CPU run the compiled extension? Asked before it is loaded: later the answer is SIGILL.

Kernels are dispatched at run time, so only the baseline that the compiler was given matters:
x86-64 and armv8-a are what every 64-bit machine has; on s390x it is z14 with the vector facility.
"""

from __future__ import annotations

import platform
from pathlib import Path

# Machine -> features (as /proc/cpuinfo calls them) that the baseline needs.
BASELINES: dict[str, frozenset[str]] = {
    "aarch64": frozenset(),
    "s390x": frozenset({"vx", "vxe"}),
    "x86_64": frozenset(),
}


def missing_features(machine: str, features: frozenset[str]) -> list[str]:
    """Features of the baseline of `machine` that are not among `features`.

    Raises:
        ImportError: the extension is not built for such machines.
    """
    if machine not in BASELINES:
        known = ", ".join(sorted(BASELINES))
        raise ImportError(f"pagemill runs on {known}; this machine is {machine}")
    return sorted(BASELINES[machine] - features)


def read_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The features of the first CPU; empty if the file does not exist."""
    if not cpuinfo.exists():
        return frozenset()
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip().lower() in ("flags", "features"):
            return frozenset(value.split())
    return frozenset()


def require_baseline() -> None:
    """Raise ImportError, naming what is missing, where the extension cannot run."""
    machine = platform.machine()
    missing = missing_features(machine, read_features())
    if missing:
        raise ImportError(
            f"pagemill on {machine} needs the CPU features {', '.join(missing)}, which this "
            "machine lacks: use a z14 or newer, or a hypervisor that passes the vector facility on"
        )
