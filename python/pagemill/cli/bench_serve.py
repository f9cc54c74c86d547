"""`pagemill bench serve`: load on a running server, as its clients feel it."""

import json
from argparse import Namespace
from pathlib import Path

from pagemill.benchmark.serving import LoadConfig
from pagemill.config import read_environment
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench serve",
        "Sends requests of random token ids, or of a data set, to a running server and reports"
        " requests and tokens per second, time to first token, time between tokens and time to the"
        " end. With a server on this machine completions of random token ids are compared with the"
        " machine's limits, measured just before: prompts and steps as short as reading the weights"
        " once or their multiplications allow (docs/performance.md). Exits with 1 if a request"
        " failed.",
        "pagemill bench serve\npagemill bench serve --request-rate 5 --max-concurrency 64 --json\n"
        "pagemill bench serve --dataset ShareGPT.json --endpoint /v1/chat/completions\n"
        "pagemill bench serve --endpoint /v1/embeddings --range-ratio 0.5",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--no-limits", action="store_true", help="skip measuring the limits (1 s)")
    made.add_argument("--plot", metavar="FILE", help="draw the distributions into a PNG file")
    made.add_config(LoadConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Sends the load and prints the report."""
    from pagemill.benchmark.server_client import ServerClient
    from pagemill.benchmark.serving import failures, run_load, serving_report
    from pagemill.benchmark.serving_plot import check_plot, plot
    from pagemill.cli.bench_report import describe, note

    config = parser.read(LoadConfig, args)
    if args.plot:
        check_plot()
    keys = read_environment().api_keys
    client = ServerClient(config.url, config.client_key or (keys[0] if keys else ""))
    measured = run_load(config, client, with_limits=not args.no_limits, note=note)
    for error in failures(measured.times):
        note(f"failed: {error}")
    if args.plot:
        plot(measured.times, Path(args.plot))
    report = serving_report(measured)
    print(json.dumps(report, indent=2) if args.json else describe(report))
    return 0 if all(t.ok for t in measured.times) else 1
