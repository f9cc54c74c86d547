"""How much of the processors other processes use: what a measurement has to know of its machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Fields of the `cpu` line of /proc/stat that are work: user, nice, system, irq, softirq and steal.
# Guest time is in user time already. Source: proc(5).
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class _Usage:
    at_s: float
    machine_s: float
    own_s: float


class MachineLoad:
    """Cores that processes other than these used since the start: this one, and the trees below
    `others`. What a process of these used that ended in between counts through its parent.

        load = MachineLoad()
        measure()
        if (load.other_cores() or 0.0) > 0.1: ...
    """

    def __init__(self, others: Iterable[int] = (), proc: Path = Path("/proc")) -> None:
        """Starts to count; `others` are process ids."""
        self._roots = {os.getpid(), *others}
        self._proc = proc
        self._begin = self._usage()

    def other_cores(self) -> float | None:
        """Returns the cores that others used on average, None if the system does not tell."""
        end = self._usage()
        if self._begin is None or end is None or end.at_s <= self._begin.at_s:
            return None
        machine = end.machine_s - self._begin.machine_s
        own = end.own_s - self._begin.own_s
        return max(0.0, machine - own) / (end.at_s - self._begin.at_s)

    def _usage(self) -> _Usage | None:
        try:
            hertz = os.sysconf("SC_CLK_TCK")
            fields = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
            machine = sum(int(fields[at]) for at in _BUSY_FIELDS if at < len(fields))
            own = sum(self._processes().values())
        except (OSError, ValueError):
            return None
        return _Usage(time.monotonic(), machine / hertz, own / hertz)

    def _processes(self) -> dict[int, int]:
        """Clock ticks of each process of ours, its ended children included."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                # The name in parentheses may hold spaces and parentheses.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (OSError, UnicodeDecodeError):
                continue  # it ended just now
            process = int(folder.name)
            parents[process] = int(fields[1])
            ticks[process] = sum(int(field) for field in fields[11:15])
        ours = {process for process in parents if self._is_ours(process, parents)}
        return {process: ticks[process] for process in ours}

    def _is_ours(self, process: int, parents: dict[int, int]) -> bool:
        seen: set[int] = set()
        while process in parents and process not in seen:
            if process in self._roots:
                return True
            seen.add(process)
            process = parents[process]
        return False
