"""Pagemill and its peers side by side: the same prompts, taking turns, in one run.

Each peer is installed from PyPI into its own virtual environment below --folder, once. Then, for
each number format, all are started, and for each workload and round each peer in turn runs the same
random prompts while the others are paused. Each round begins with a measurement of the machine's
limits. A run that other processes disturbed is repeated, and marked if it remained so.

    ./bazelw run --config=release //tools/bench/compare -- --peers pagemill,llama.cpp
    ./bazelw run --config=release //tools/bench/compare -- --formats given --model FILE.gguf
    ./bazelw run --config=release //tools/bench/compare -- --install_only

docs/performance.md explains the figures and the requirements on the machine.
"""

from __future__ import annotations

import datetime
import functools
import platform
import signal
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from absl import app, flags
from pagemill.benchmark.machine_load import MachineLoad

from tools.bench.compare.environment import Environment, PeerError
from tools.bench.compare.formats import ModelFiles
from tools.bench.compare.peers.base import Peer, Start
from tools.bench.compare.peers.table import PEERS, peer
from tools.bench.compare.process import DriverProcess, PeerProcess, ServerProcess, free_port
from tools.bench.compare.report import OURS, Comparison, write
from tools.bench.compare.turns import QUIET_CORES, Contestant, Table, take_turns
from tools.bench.compare.workloads import WORKLOADS, Workload

FORMATS = ("bf16", "q8_0", "given")
_LOOK_S = 2.0


_PEERS = flags.DEFINE_list("peers", list(PEERS), "Peers that are compared.")
_FORMATS = flags.DEFINE_list(
    "formats",
    list(FORMATS),
    "Number formats; `given` is the file as it is. Each peer takes part if it loads the format.",
)
_WORKLOADS = flags.DEFINE_list(
    "workloads",
    list(WORKLOADS),
    "; ".join(f"{each.name}: {each.text}" for each in WORKLOADS.values()),
)
_MODEL = flags.DEFINE_string("model", None, "GGUF file. Default: that of `pagemill serve`.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds, of which medians are taken.", lower_bound=1)
_THREADS = flags.DEFINE_integer(
    "threads", None, "Threads of each peer. Default: one for each physical core.", lower_bound=1
)
_FOLDER = flags.DEFINE_string(
    "folder",
    "~/.cache/pagemill-compare",
    "Folder of environments, converted models and logs.",
)
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "Writes OUTPUT.json, OUTPUT.md and OUTPUT.svg. Default: bench/results/compare-MODEL.",
)
_INSTALL_ONLY = flags.DEFINE_boolean("install_only", False, "Install the peers and stop.")


def _check_names(holder: flags.FlagHolder[list[str]], known: Collection[str]) -> None:
    flags.register_validator(
        holder, lambda names: set(names) <= set(known), message=f"known: {', '.join(known)}"
    )


_check_names(_PEERS, PEERS)
_check_names(_FORMATS, FORMATS)
_check_names(_WORKLOADS, WORKLOADS)


class _Setting:
    """Creates everything needed to start a peer."""

    def __init__(self) -> None:
        from pagemill import _native
        from pagemill.config import ModelConfig
        from pagemill.engine.model_plan import model_path

        self.folder: Path = Path(_FOLDER.value).expanduser().resolve()
        self.model: Path = Path(_MODEL.value) if _MODEL.value else model_path(ModelConfig())
        self.threads: int = _THREADS.value or _native.detect_capabilities().cores
        self.files = ModelFiles(self.model.resolve(), self.folder, self.installed)
        self._installed: dict[str, Environment] = {}

    def installed(self, name: str) -> Environment:
        """The environment of that name, installed at first use."""
        if name not in self._installed:
            environment = Environment(self.folder / name)
            for found in map(peer, PEERS):
                if found.environment == name:
                    _note(f"environment {name} ...")
                    found.install(environment)
                    break
            self._installed[name] = environment
        return self._installed[name]

    def contestant(self, name: str, number_format: str) -> Contestant:
        """The peer with its model; missing parts are installed or converted now."""
        found = peer(name)
        environment = self.installed(found.environment)
        model = self.files.path(found.models[number_format])
        log = self.folder / "logs" / f"{name}-{number_format}.log"

        def start() -> PeerProcess:
            port = free_port()
            command = found.command(environment, Start(model, self.threads, port))
            if found.kind == "http":
                return ServerProcess(command, log, port)
            return DriverProcess(command, log)

        return Contestant(name, start, lambda work: does(found, work))


def does(found: Peer, work: Workload) -> bool:
    """True if this peer can run it."""
    if work.server_only:
        return found.kind == "http"
    return found.concurrent or work.requests == 1


def _compare(setting: _Setting) -> list[Table]:
    from pagemill.config import EngineConfig, ExecutorConfig, ModelConfig

    from tools.bench.compare.limits import measure_best

    tables: list[Table] = []
    work = [WORKLOADS[name] for name in _WORKLOADS.value]
    for number_format in _FORMATS.value:
        names = [name for name in _PEERS.value if number_format in peer(name).models]
        contestants = [setting.contestant(name, number_format) for name in names]
        ours = str(setting.files.path(peer(OURS).models[number_format]))
        config = EngineConfig(
            model=ModelConfig(model=ours), executor=ExecutorConfig(threads=setting.threads)
        )

        limits = functools.partial(measure_best, config, integers=number_format != "bf16")
        # All are started once before, so that their caches are filled, as on a server.
        for contestant in contestants:
            _note(f"first start of {contestant.name} ...")
            contestant.start().stop()
        table = Table(number_format)
        turns = sum(c.does(each) for c in contestants for each in work) * (_ROUNDS.value + 1)
        total = turns + len(contestants)
        lines = take_turns(table, contestants, work, _ROUNDS.value, limits)
        for done, line in enumerate(lines, start=1):
            _note(f"{_bar(done, total)} {number_format:5} {line}")
        tables.append(table)
    return tables


def _warn_of_load() -> None:
    """Warns before an hour is spent on figures that will be marked."""
    load = MachineLoad()
    time.sleep(_LOOK_S)
    others = load.other_cores()
    if others is not None and others > QUIET_CORES:
        _note(f"warning: other processes use {others:.1f} cores; the report will be marked")


def _bar(done: int, total: int) -> str:
    width = 20
    filled = width * done // total
    return f"[{'#' * filled}{'.' * (width - filled)}] {done}/{total}"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main(arguments: Sequence[str]) -> int:
    """Compares; returns the exit status."""
    if len(arguments) > 1:
        raise app.UsageError(f"unknown argument {arguments[1]!r}")
    # Ends the peers' processes with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        setting = _Setting()
        if _INSTALL_ONLY.value:
            for name in _PEERS.value:
                setting.installed(peer(name).environment)
            return 0
        _warn_of_load()
        tables = _compare(setting)
    except PeerError as error:
        _note(f"error: {error}")
        return 1
    from pagemill import _native

    comparison = Comparison(
        model=setting.model.stem,
        cpu=_cpu_name(),
        isa=str(_native.detect_capabilities()),
        threads=setting.threads,
        rounds=_ROUNDS.value,
        date=datetime.date.today().isoformat(),
        tables=tables,
    )
    stem = Path(_OUTPUT.value or f"bench/results/compare-{setting.model.stem.lower()}")
    for path in write(comparison, stem):
        print(path)
    return 0


if __name__ == "__main__":
    app.run(main)
