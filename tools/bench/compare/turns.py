"""Runs the workloads on the peers in turns, until each has had every round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pagemill.benchmark.machine_load import MachineLoad

from tools.bench.compare import workloads
from tools.bench.compare.process import PeerProcess
from tools.bench.compare.workloads import Workload

if TYPE_CHECKING:
    from pagemill.benchmark.machine_limits import MachineLimits

# A run is discarded and repeated, up to a limit, if others used more of the cores meanwhile.
QUIET_CORES = 0.1
_ATTEMPTS = 3
# Seed of the warm-up round.
_WARM_UP = -1


@dataclass(frozen=True, slots=True)
class Run:
    """One workload, run once."""

    peer: str
    workload: str
    value: float  # in the workload's unit
    first_token_ms: float
    gap_p50_ms: float | None  # None if there was one token
    gap_p99_ms: float | None
    other_cores: float | None  # used by processes other than the peer and its client

    @property
    def disturbed(self) -> bool:
        """True if other processes disturbed it, or if the system does not report this."""
        return self.other_cores is None or self.other_cores > QUIET_CORES


@dataclass(slots=True)
class Table:
    """All measurements of one number format."""

    number_format: str
    ready_s: dict[str, float] = field(default_factory=dict[str, float])
    resident_bytes: dict[str, int] = field(default_factory=dict[str, int])
    runs: list[Run] = field(default_factory=list[Run])
    # Workload -> the machine's limit in its unit, once a round.
    limits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def of(self, peer: str, workload: str) -> list[Run]:
        """The runs of `peer`."""
        return [run for run in self.runs if (run.peer, run.workload) == (peer, workload)]

    def median(self, peer: str, workload: str, what: str = "value") -> float | None:
        """Returns the median of a field over the rounds, None if there were none."""
        found = [getattr(run, what) for run in self.of(peer, workload)]
        known = [value for value in found if value is not None]
        return statistics.median(known) if known else None

    def limit(self, workload: str) -> float | None:
        """Returns the median over the rounds, None if no limit is known."""
        found = self.limits.get(workload)
        return statistics.median(found) if found else None


@dataclass(frozen=True, slots=True)
class Contestant:
    """A peer and how to start it."""

    name: str
    start: Callable[[], PeerProcess]
    does: Callable[[Workload], bool]


def take_turns(
    table: Table,
    contestants: Sequence[Contestant],
    work: Sequence[Workload],
    rounds: int,
    measure_limits: Callable[[], MachineLimits],
) -> Iterator[str]:
    """Fills the table, and yields a line for each run.

    All processes are started first, and each is stopped by a signal while others have their turn.

    Raises:
      PeerError: a process does not start, or a request fails.
    """
    with ExitStack() as stack:
        running: dict[str, PeerProcess] = {}
        for contestant in contestants:
            process = contestant.start()
            stack.callback(process.stop)
            process.pause()
            running[contestant.name] = process
            table.ready_s[contestant.name] = process.ready_s
            yield f"{contestant.name} is ready after {process.ready_s:.1f} s"
        for number in range(_WARM_UP, rounds):
            if number != _WARM_UP:
                limits = measure_limits()
                for each in work:
                    table.limits.setdefault(each.name, []).append(each.limit(limits))
            # Every second round in reverse, so that none always comes after the same other.
            order = contestants if number % 2 == 0 else contestants[::-1]
            for each in work:
                for contestant in order:
                    if not contestant.does(each):
                        continue
                    run = _one_turn(contestant.name, running[contestant.name], each, number)
                    if number != _WARM_UP:
                        table.runs.append(run)
                    yield _line(run, each, number)
        for name, process in running.items():
            table.resident_bytes[name] = process.resident_bytes()


def _one_turn(name: str, process: PeerProcess, work: Workload, number: int) -> Run:
    """Repeats a disturbed run; the last attempt counts in any case."""
    attempts = 1 if number == _WARM_UP else _ATTEMPTS
    process.resume()
    try:
        for attempt in range(attempts - 1):
            run = _run(name, process, work, seed=_ATTEMPTS * number + attempt)
            if not run.disturbed:
                return run
        return _run(name, process, work, seed=_ATTEMPTS * number + attempts - 1)
    finally:
        process.pause()


def _run(name: str, process: PeerProcess, work: Workload, seed: int) -> Run:
    load = MachineLoad([process.pid])
    times = process.run(work.prompts(seed), work.output_len, work.concurrency)
    gaps = any(each.gaps for each in times)
    return Run(
        peer=name,
        workload=work.name,
        value=work.value(work, times),
        first_token_ms=workloads.first_token_ms(times),
        gap_p50_ms=workloads.gap_ms(times, 50) if gaps else None,
        gap_p99_ms=workloads.gap_ms(times, 99) if gaps else None,
        other_cores=load.other_cores(),
    )


def _line(run: Run, work: Workload, number: int) -> str:
    what = "warm-up" if number == _WARM_UP else f"round {number + 1}"
    shown = f"{run.workload:8} {run.peer:12} {run.value:9,.1f} {work.unit}"
    others = "?" if run.other_cores is None else f"{run.other_cores:.1f}"
    return f"{what:8} {shown}" + (f"  DISTURBED by {others} cores" if run.disturbed else "")
