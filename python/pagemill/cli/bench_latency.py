"""`pagemill bench latency`: one batch, from its submission to its last token."""

from argparse import Namespace

from pagemill.benchmark.workload import WorkloadConfig
from pagemill.cli.bench_report import PROFILE_HELP, TRACE_HELP
from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench latency",
        "Times one batch of requests from submission to the last token, offline. With one request"
        " (--num-prompts 1) it is single-stream decoding. What is achieved is compared with the"
        " machine's limits, measured just before: no step is shorter than reading the weights once,"
        " or than the multiplications that its tokens need (docs/performance.md).",
        "pagemill bench latency --num-prompts 1\npagemill bench latency model.gguf --input-len 1k",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--no-limits", action="store_true", help="skip measuring the limits (1 s)")
    made.add_argument(
        "--profile", nargs="?", const="ops", choices=("ops", "layers"), help=PROFILE_HELP
    )
    made.add_argument("--trace", metavar="FILE", help=TRACE_HELP)
    made.add_config(WorkloadConfig)
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Runs the benchmark and prints its report."""
    from pagemill.benchmark.offline_report import latency_report, run_offline
    from pagemill.cli.bench_report import note, show

    measured = run_offline(
        parser.read(WorkloadConfig, args, (EngineConfig,)),
        parser.read(EngineConfig, args, (WorkloadConfig,)),
        with_limits=not args.no_limits,
        with_profile=args.profile is not None,
        trace=args.trace,
        note=note,
    )
    show(latency_report(measured), measured.profile, args.profile, as_json=args.json)
    return 0
