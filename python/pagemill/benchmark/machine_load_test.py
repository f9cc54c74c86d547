"""Whose work is counted as others'."""

import os
import subprocess
import sys
import time
from pathlib import Path

from pagemill.benchmark.machine_load import MachineLoad

HERTZ = os.sysconf("SC_CLK_TCK")


def _write(proc: Path, machine_s: float, processes: dict[int, tuple[int, float]]) -> None:
    ticks = round(machine_s * HERTZ)
    proc.mkdir(exist_ok=True)
    (proc / "stat").write_text(f"cpu  {ticks} 0 0 99999 0 0 0 0 0 0\ncpu0 0\n")
    for process, (parent, seconds) in processes.items():
        (proc / str(process)).mkdir(exist_ok=True)
        fields = ["S", str(parent), *["0"] * 9, str(round(seconds * HERTZ)), "0", "0", "0", "20"]
        (proc / str(process) / "stat").write_text(f"{process} (a b) c) {' '.join(fields)}\n")


def test_own_processes_and_their_children_do_not_count(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    own = os.getpid()
    _write(proc, 100, {own: (1, 1), 70001: (own, 2), 70002: (1, 3), 70003: (70002, 4)})
    load, alone = MachineLoad([70002], proc), MachineLoad((), proc)
    _write(proc, 1100, {own: (1, 101), 70001: (own, 202), 70002: (1, 303), 70003: (70002, 404)})
    begin = time.monotonic()
    others, more = load.other_cores(), alone.other_cores()
    assert others is not None
    assert more is not None
    assert others == 0.0
    # 700 of the 1,000 seconds were those of 70002 and its child.
    assert more > 700 / (time.monotonic() - begin + 60)


def test_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert MachineLoad((), tmp_path / "nowhere").other_cores() is None


def test_a_process_of_somebody_else_counts() -> None:
    # A grandchild whose parent has gone belongs to no process here.
    spin = "import time; end = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin!r}])"
    load = MachineLoad()
    subprocess.run([sys.executable, "-c", start], check=True)
    time.sleep(0.6)
    others = load.other_cores()
    assert others is not None
    assert others > 0.02
