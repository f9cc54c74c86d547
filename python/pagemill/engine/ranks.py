"""The other ranks of a divided model: worker processes that run rank 0's steps.

    workers = RankWorkers.start(builts[1:], options.arguments)   # they load while rank 0 does
    executor = _native.NativeExecutor(builts[0].program_text, options, workers.world)
    workers.wait_ready()

A worker gets the group's shared memory as descriptors and its program on standard input, which
goes on with jobs (`rank_jobs`). It ends
when rank 0 does, however that ends: it waits for rank 0 in the shared memory, and detects its end.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagemill import _native
from pagemill.engine import rank_adapters, rank_jobs
from pagemill.engine.outputs import EngineError
from pagemill.weights.adapters import Layer

# The worker imports what this process would, wherever it found that.
_BOOT = (
    "import json, sys\n"
    "job = json.loads(sys.stdin.readline())\n"
    "sys.path[:] = job['path']\n"
    "from pagemill.engine.rank_worker import run\n"
    "sys.exit(run(job))\n"
)
_LOOK_EVERY_S = 0.1
_START_LIMIT_S = 600.0  # reading and packing the weights of a large model
_STOP_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 600.0  # reading the weights of a large model, or an adapter


@dataclass(frozen=True, slots=True)
class RankDevice:
    """The device of rank 0; rank r has the one r places behind it. And what a
    `_native.DeviceExecutor` is for."""

    vendor: str
    index: int
    max_model_len: int
    vocab_size: int
    max_adapter_rank: int
    offload_bytes: int


@dataclass(frozen=True, slots=True)
class RankStage:
    """What a rank has and sends of a step, if the layers are divided into stages: the arguments of
    `_native.Stage`."""

    tables: list[int]
    sends: list[str]

    def native(self) -> _native.Stage:
        """For this process."""
        return _native.Stage(self.tables, self.sends)


class RankWorkers:
    """Ranks 1 to n - 1 as processes, and rank 0's place in the group."""

    def __init__(
        self,
        world: _native.World,
        page_segment: _native.PageSegment | None,
        processes: Sequence[subprocess.Popen[bytes]],
    ) -> None:
        self.world = world
        self.page_segment = page_segment
        """To copy KV pages of all ranks; None: they cannot be copied."""
        self._processes = processes
        self._jobs = threading.Lock()  # a job at a time

    @classmethod
    def start(
        cls,
        programs: Sequence[str],
        arguments: Mapping[str, Any],
        device: RankDevice | None = None,
        stages: Sequence[RankStage] = (),
        num_stages: int = 1,
        page_bytes: int = 0,
    ) -> RankWorkers:
        """Starts a process for each of `programs`, of ranks 1, 2, ...; `arguments` are those of
        `_native.ExecutorOptions`, `stages` those of the ranks if there are several, `page_bytes`
        the size of a rank's KV pages if they can be copied. Returns before they are ready."""
        tensor = (len(programs) + 1) // num_stages
        segment = _native.SharedSegment(tensor, pipeline=num_stages)
        pages = _native.PageSegment(tensor, page_bytes) if page_bytes else None
        descriptors = [segment.fd] if pages is None else [segment.fd, pages.fd]
        workers = cls(_native.World(segment, 0), pages, [])
        processes: list[subprocess.Popen[bytes]] = []
        workers._processes = processes
        try:
            for rank, program in enumerate(programs, 1):
                command = [sys.executable, "-c", _BOOT]
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=descriptors,
                )
                processes.append(process)
                job = {
                    "path": sys.path,
                    "fd": segment.fd,
                    "pages_fd": None if pages is None else pages.fd,
                    "rank": rank,
                    "program": program,
                    "arguments": dict(arguments),
                    "device": None if device is None else asdict(device),
                    "stage": asdict(stages[rank - 1]) if stages else None,
                }
                assert process.stdin is not None
                # One that has ended already is reported by wait_ready().
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(job).encode() + b"\n")
                    process.stdin.flush()
        except BaseException:
            workers.stop()
            raise
        return workers

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of ranks 1, 2, ..."""
        return tuple(process.pid for process in self._processes)

    def wait_joined(self) -> None:
        """Returns when every rank has joined the group, before it binds its program.

        Raises:
            EngineError: as `wait_ready`.
        """
        self._wait(lambda: None)

    def wait_ready(self) -> None:
        """Returns when every rank has bound its program.

        Raises:
            EngineError: a worker ended, or is not ready after 10 minutes.
        """
        self._wait(self.world.meet)

    def _wait(self, then: Callable[[], None]) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            try:
                self.world.wait_for_all(_LOOK_EVERY_S)
                then()
                return
            except _native.StatusError as error:
                self.check()
                if time.monotonic() > deadline:
                    raise EngineError("UNAVAILABLE", str(error)) from error

    def add_adapter(self, adapter_id: int, parts: Sequence[Sequence[Layer]]) -> int:
        """Gives ranks 1, 2, ... their `parts` of an adapter; returns the bytes of all.

        Raises:
            EngineError: one does not fit, or a worker has ended; some may have got theirs.
        """
        with tempfile.TemporaryDirectory(prefix="pagemill-") as folder:
            jobs = [
                rank_adapters.write_part(adapter_id, Path(folder) / f"{rank}.npz", layers)
                for rank, layers in enumerate(parts, 1)
            ]
            return sum(self._run("adapter", jobs))

    def kv_fingerprints(self) -> list[str]:
        """`kv_fingerprint()` of ranks 1, 2, ..., which may read all of their weights.

        Raises:
            EngineError: a worker has ended, or did not answer.
        """
        return self._run("fingerprint", [{} for _ in self._processes])

    def _run(self, kind: str, jobs: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The answers of all workers, each to its job, at the same time."""
        answers: list[Any] = []
        errors: list[EngineError] = []
        with self._jobs:
            sent: list[subprocess.Popen[bytes]] = []
            for process, job in zip(self._processes, jobs, strict=True):
                try:
                    rank_jobs.send(process, kind, **job)
                    sent.append(process)
                except EngineError as error:
                    errors.append(error)
            for process in sent:
                try:
                    answers.append(rank_jobs.receive_answer(process, _ANSWER_LIMIT_S))
                except EngineError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def check(self) -> None:
        """Looks whether all workers are alive; cheap.

        Raises:
            EngineError: one has ended, so that no step can run any more.
        """
        polled = [
            (process.poll(), rank, process) for rank, process in enumerate(self._processes, 1)
        ]
        ended = [(status, rank, process) for status, rank, process in polled if status is not None]
        if not ended:
            return
        # The others may have ended because of one that was killed or failed.
        status, rank, process = min(ended, key=lambda each: (each[0] == 0, each[0] > 0, each[1]))
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise EngineError(
            "UNAVAILABLE",
            f"rank {rank} of {self.world.num_ranks} (process {process.pid}) {how}: the model"
            " cannot run without it; start the engine again",
        )

    def stop(self) -> None:
        """Ends the workers; the engine has been shut down. Idempotent."""
        self.world.leave()
        deadline = time.monotonic() + _STOP_LIMIT_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
