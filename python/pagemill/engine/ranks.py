"""The other ranks of a divided model: worker processes that run rank 0's steps.

    workers = RankWorkers.start(builts[1:], options.arguments)   # they load while rank 0 does
    executor = _native.NativeExecutor(builts[0].program_text, options, workers.world)
    workers.wait_ready()

A worker gets the group's shared memory as descriptors and its program on standard input, which
goes on with jobs (`rank_jobs`). It ends
when rank 0 does, however that ends: it waits for rank 0 in the shared memory, and detects its end.

With ranks on several machines (`nodes`), each machine starts its own; `node_follower` does it on
those without rank 0.
"""

from __future__ import annotations

import contextlib
import json
import logging
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
from pagemill.config import ConfigError, EngineConfig
from pagemill.engine import rank_adapters, rank_jobs
from pagemill.engine.executor_sizes import ExecutorSizes
from pagemill.engine.nodes import Nodes
from pagemill.engine.outputs import EngineError
from pagemill.runner.build import BuiltModel
from pagemill.weights.adapters import Layer

# The worker imports what this process would, wherever it found that.
_BOOT = (
    "import json, signal, sys\n"
    # Those to the whole group are for rank 0.
    "for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):\n"
    "    signal.signal(signal.Signals[name], signal.SIG_IGN)\n"
    "job = json.loads(sys.stdin.readline() or sys.exit())\n"
    "sys.path[:] = job['path']\n"
    "from pagemill.engine.rank_worker import run\n"
    "sys.exit(run(job))\n"
)
_LOGGER = logging.getLogger("pagemill.engine")
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


def stages_of(
    ranks: Sequence[BuiltModel], config: EngineConfig, sizes: ExecutorSizes
) -> list[RankStage]:
    """Those of all ranks, in order; empty if there is one stage."""
    if sizes.stages == 1:
        return []
    tables = sizes.kv_tables(ranks, config).of_stages
    return [RankStage(own, list(rank.sends)) for own, rank in zip(tables, ranks, strict=True)]


class RankWorkers:
    """The first rank of this machine, which this process runs, and the others as processes."""

    def __init__(
        self,
        world: _native.World,
        page_segment: _native.PageSegment | None,
        processes: Sequence[subprocess.Popen[bytes]],
        stopped: threading.Event | None = None,
    ) -> None:
        self.world = world
        self.page_segment = page_segment
        """To copy KV pages of all ranks; None: they cannot be copied."""
        self._processes = processes
        self._stopped = stopped
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
        nodes: Nodes | None = None,
        first_rank: int = 0,
        stopped: threading.Event | None = None,
    ) -> RankWorkers:
        """Starts a process for each of `programs`, of the ranks behind `first_rank`, that of this
        process; `arguments` are those of `_native.ExecutorOptions`, `stages` those of the ranks if
        there are several, `page_bytes` the size of a rank's KV pages if they can be copied, `nodes`
        the machines if there are several. Once `stopped` is set, ranks are not waited for. Returns
        before they are ready.

        Raises:
            ConfigError: see `Nodes.join`.
        """
        tensor = (len(programs) + 1) // num_stages
        if nodes is None:
            segment = _native.SharedSegment(tensor, pipeline=num_stages)
            world = _native.World(segment, 0)
        else:
            segment = nodes.segment()
            world = nodes.join(first_rank, segment)
        pages = _native.PageSegment(tensor, page_bytes) if page_bytes else None
        descriptors = [each.fd for each in (segment, pages) if each is not None]
        workers = cls(world, pages, [], stopped)
        processes: list[subprocess.Popen[bytes]] = []
        workers._processes = processes
        try:
            for rank, program in enumerate(programs, first_rank + 1):
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
                    "fd": None if segment is None else segment.fd,
                    "nodes": None if nodes is None else asdict(nodes),
                    "pages_fd": None if pages is None else pages.fd,
                    "rank": rank,
                    "program": program,
                    "arguments": dict(arguments),
                    "device": None if device is None else asdict(device),
                    "stage": asdict(stages[rank - first_rank - 1]) if stages else None,
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
        """The processes of the other ranks of this machine, in order."""
        return tuple(process.pid for process in self._processes)

    def wait_joined(self) -> None:
        """Returns when every rank has joined the group, before it binds its program.

        Raises:
            ConfigError: another machine refuses this one, or cannot be joined.
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
        deadline, said = time.monotonic() + _START_LIMIT_S, ""
        while True:
            try:
                self.world.wait_for_all(_LOOK_EVERY_S)
                then()
                return
            except _native.StatusError as error:
                has_nodes = isinstance(self.world, _native.NodesWorld)
                if has_nodes and error.code != "UNAVAILABLE":
                    raise ConfigError(f"--nnodes: {error.message}") from error
                self.check()
                if self._stopped is not None and self._stopped.is_set():
                    raise EngineError(
                        "UNAVAILABLE", "stopped before all ranks were ready"
                    ) from error
                if has_nodes and error.message != said:
                    said = error.message
                    _LOGGER.info("waiting for other nodes: %s", said)
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
        """Looks whether all workers and the other machines are alive; cheap.

        Raises:
            EngineError: one has ended, so that no step can run any more.
        """
        polled = [
            (process.poll(), rank, process)
            for rank, process in enumerate(self._processes, self.world.rank + 1)
        ]
        ended = [(status, rank, process) for status, rank, process in polled if status is not None]
        if not ended:
            return self._check_nodes()
        if isinstance(self.world, _native.NodesWorld):
            self.world.note_death()
        # The others may have ended because of one that was killed or failed.
        status, rank, process = min(ended, key=lambda each: (each[0] == 0, each[0] > 0, each[1]))
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise EngineError(
            "UNAVAILABLE",
            f"rank {rank} of {self.world.num_ranks} (process {process.pid}) {how}: the model"
            " cannot run without it; start the engine again",
        )

    def _check_nodes(self) -> None:
        if not isinstance(self.world, _native.NodesWorld):
            return
        try:
            self.world.check()
        except _native.StatusError as error:
            raise EngineError(
                "UNAVAILABLE",
                f"{error.message}: the model cannot run without it; start all nodes again",
            ) from error

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
