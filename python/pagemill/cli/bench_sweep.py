"""`pagemill bench sweep`: every combination of server options and loads of a grid."""

import contextlib
import json
import sys
from argparse import Namespace

from pagemill.benchmark.sweep.config import SweepConfig
from pagemill.config import ConfigError, read_environment
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench sweep",
        "Starts a fresh `pagemill serve` for each combination of server options of a grid, sends"
        " each of its loads as `pagemill bench serve` does, and prints medians of throughput and"
        " latency. Each run is appended to a results file: a sweep that was interrupted continues"
        " there, and so does one whose grid has grown. Each run has other prompts, and its servers"
        " listen on free ports of 127.0.0.1. At most 1,000 runs. Exits with 1 if a server did not"
        " start or a request failed.",
        "pagemill bench sweep grid.json\n"
        "pagemill bench sweep grid.json -o results.jsonl --num-iters 5 --plot sweep.svg",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument(
        "--plot",
        metavar="FILE",
        help="draw throughput over latency, with the Pareto front, into FILE (.svg, .png or .pdf)",
    )
    made.add_config(SweepConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Measures what is missing in the results file and prints the table."""
    from pagemill.benchmark.server_process import running_server
    from pagemill.benchmark.sweep.grid import read_grid
    from pagemill.benchmark.sweep.measure import measure_missing
    from pagemill.benchmark.sweep.plot import check_plot, plot
    from pagemill.benchmark.sweep.results import Results
    from pagemill.benchmark.sweep.summary import summarize, table
    from pagemill.cli.bench_report import note
    from pagemill.engine.progress_bar import ProgressBar

    config = parser.read(SweepConfig, args)
    if config.grid is None:
        raise ConfigError("name the file of the grid: `pagemill bench sweep grid.json`")
    grid = read_grid(config.grid, config.num_iters)
    if args.plot:
        check_plot(args.plot)
    results = Results(config.output)
    keys = read_environment().api_keys
    with contextlib.closing(ProgressBar(grid.num_runs, sys.stderr, unit="run")) as bar:
        measure_missing(
            grid,
            results,
            running_server,
            api_key=keys[0] if keys else "",
            note=note,
            on_run=lambda count: bar.add(tokens=0, finished=count),
        )
    combinations = summarize(grid, results)
    if args.plot:
        plot(combinations, args.plot)
    if args.json:
        print(json.dumps([each.as_json() for each in combinations], indent=2))
    else:
        print(table(combinations))
    complete = all(each.runs == grid.repeats for each in combinations)
    return 0 if complete and not any(each.failed_requests for each in combinations) else 1
