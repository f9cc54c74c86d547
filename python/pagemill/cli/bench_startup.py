"""`pagemill bench startup`: how long a server takes from its start to its first token."""

import contextlib
import json
import sys
from argparse import Namespace

from pagemill.benchmark.startup import StartupConfig
from pagemill.config import EngineConfig, read_environment
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench startup",
        "Starts `pagemill serve` on a free port several times and reports medians of the time from"
        " the start of the process until it is ready and until the first token of a short prompt,"
        " and the peak of its resident memory. Each cold start has an empty cache folder, without"
        " packed or rounded weights; the warm start after it has what the cold one left there."
        " Fetching the model does not count, and its files may be in the system's page cache.",
        "pagemill bench startup\npagemill bench startup model.gguf --num-iters 5 --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_config(StartupConfig)
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Measures the starts and prints the report."""
    from pagemill.benchmark.server_process import running_server
    from pagemill.benchmark.startup import run_starts, startup_report
    from pagemill.cli.bench_report import describe
    from pagemill.engine.progress_bar import ProgressBar

    config = parser.read(StartupConfig, args, (EngineConfig,))
    engine = parser.read(EngineConfig, args, (StartupConfig,))
    keys = read_environment().api_keys
    with contextlib.closing(ProgressBar(2 * config.num_iters, sys.stderr, unit="start")) as bar:
        found = run_starts(
            engine,
            config.num_iters,
            running_server,
            api_key=keys[0] if keys else "",
            on_start=lambda: bar.add(tokens=0, finished=1),
        )
    report = startup_report(found)
    print(json.dumps(report, indent=2) if args.json else describe(report))
    return 0
