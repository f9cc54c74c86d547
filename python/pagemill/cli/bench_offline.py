"""What `pagemill bench latency` and `pagemill bench throughput` share: a run without a server."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pagemill.benchmark.workload import WorkloadConfig
from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser

if TYPE_CHECKING:
    from pagemill.benchmark.offline_report import MeasuredRuns

_PROFILE_HELP = (
    "show where the time of steps went: in which ops (default) or in which layers (clocks take"
    " about 0.1 us an op)"
)
_TRACE_HELP = (
    "write the steps of the measured runs and their ops into a file in Chrome's trace format, for"
    " Perfetto (the first 200,000 events)"
)


def offline_parser(command: str, description: str, examples: str) -> FlagParser:
    """Returns the parser of such a command."""
    made = FlagParser(command, description, examples)
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--no-limits", action="store_true", help="skip measuring the limits (1 s)")
    made.add_argument(
        "--profile", nargs="?", const="ops", choices=("ops", "layers"), help=_PROFILE_HELP
    )
    made.add_argument("--trace", metavar="FILE", help=_TRACE_HELP)
    made.add_config(WorkloadConfig)
    made.add_config(EngineConfig)
    return made


def run_and_print(
    parser: FlagParser, args: Namespace, report_of: Callable[[MeasuredRuns], dict[str, Any]]
) -> int:
    """Runs the benchmark and prints its report, and where the time of its steps went if that was
    measured."""
    from pagemill.benchmark.offline_report import run_offline
    from pagemill.cli.bench_report import describe, note

    measured = run_offline(
        parser.read(WorkloadConfig, args, (EngineConfig,)),
        parser.read(EngineConfig, args, (WorkloadConfig,)),
        with_limits=not args.no_limits,
        with_profile=args.profile is not None,
        trace=args.trace,
        note=note,
    )
    report, profile = report_of(measured), measured.profile
    if args.json:
        print(json.dumps(report | ({"profile": profile.as_json()} if profile else {}), indent=2))
        return 0
    print(describe(report))
    if profile:
        print(f"\n{profile.table(args.profile)}")
    return 0
