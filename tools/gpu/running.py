"""Runs items within a budget of time; each result is saved as it comes."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from tools.gpu import records
from tools.gpu.items import Item
from tools.gpu.results import PASSED, Result, Results

_TAIL = 40  # lines of output that are kept of what did not pass
_DIAGNOSIS_S = 60.0
_LEAST_S = 5.0  # in which an item may be of use


@dataclass(slots=True)
class Runner:
    """`environment` of the processes; `deadline` by time.monotonic(), at which all end; `jobs` that
    may run beside each other."""

    results: Results
    environment: Mapping[str, str]
    root: Path
    deadline: float
    jobs: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, items: Sequence[Item]) -> None:
        """Run those without a final result, in order: items that may share the machine beside each
        other, the others alone."""
        left = deque(item for item in items if not self.results.is_final(item.name))
        with ThreadPoolExecutor(self.jobs) as pool:
            pending: dict[str, Future[None]] = {}
            while left:
                item = left.popleft()
                before = list(pending) if item.alone else item.needs
                wait([pending[name] for name in before if name in pending])
                if item.alone:
                    pending.clear()
                    self._run_one(item)
                else:
                    pending[item.name] = pool.submit(self._run_one, item)
            wait(pending.values())

    def _run_one(self, item: Item) -> None:
        missing = [name for name in item.needs if not self._passed(name)]
        left_s = self.deadline - time.monotonic()
        if missing or left_s < _LEAST_S:
            reason = f"needs {', '.join(missing)}" if missing else "no time is left"
            self._put(item, Result("left out", output=reason))
            return
        result = Result()
        self._put(item, result)
        begun = time.monotonic()
        status = self._process(item, result, min(item.limit_s, left_s))
        result.seconds = round(time.monotonic() - begun, 2)
        result.status = status
        if status == PASSED:
            result.output = ""
        elif status != "refused" and item.diagnosis and shutil.which(item.diagnosis[0]):
            result.output += self._diagnose(item.diagnosis)
        self._put(item, result)
        print(f"{item.name}: {status}, {result.seconds:.1f} s", flush=True)

    def _diagnose(self, command: Sequence[str]) -> str:
        """The end of what `command` prints."""
        limit_s = min(_DIAGNOSIS_S, self.deadline - time.monotonic())
        if limit_s < _LEAST_S:
            return ""
        environment = {**os.environ, **self.environment}
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{command[0]} did not end in {limit_s:.0f} s\n"
        return "\n".join(done.stdout.splitlines()[-_TAIL:]) + "\n"

    def _passed(self, name: str) -> bool:
        found = self.results.get(name)
        return found is not None and found.status == PASSED

    def _put(self, item: Item, result: Result) -> None:
        with self._lock:
            self.results.put(item.name, result)

    def _process(self, item: Item, result: Result, limit_s: float) -> str:
        """Its status; what it says is in `result` and saved as it comes."""
        command = list(item.command)
        if item.is_timed:
            command += ["--started", repr(time.monotonic())]
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        timed_out = threading.Event()

        def end() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.start()
        tail: deque[str] = deque(maxlen=_TAIL)
        assert process.stdout is not None
        for line in process.stdout:
            record = records.read(line)
            if record is None:
                tail.append(line)
                continue
            result.records.append(record)
            self._put(item, result)
        code = process.wait()
        timer.cancel()
        result.output = "".join(tail)
        if timed_out.is_set():
            return "ended"
        if code < 0:
            result.output += f"ended by signal {-code}\n"
        return {0: PASSED, records.REFUSED: "refused"}.get(code, "failed")
