"""`pagemill bench throughput`: tokens per second over many requests."""

from argparse import Namespace

from pagemill.benchmark.workload import WorkloadConfig
from pagemill.cli.bench_report import PROFILE_HELP, TRACE_HELP
from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench throughput",
        "Submits many requests at once, offline, and reports tokens per second over the whole run."
        " The limit given is that of a run without a pause: prompts first, then steps of up to"
        " --max-num-seqs requests, each as short as reading the weights once or its multiplications"
        " allow (docs/performance.md).",
        "pagemill bench throughput\n"
        "pagemill bench throughput --num-prompts 200 --input-len 512 --prefix-len 480\n"
        "pagemill bench throughput --dataset ShareGPT.json --max-request-len 2k",
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
    from pagemill.benchmark.offline_report import run_offline, throughput_report
    from pagemill.cli.bench_report import note, show

    measured = run_offline(
        parser.read(WorkloadConfig, args, (EngineConfig,)),
        parser.read(EngineConfig, args, (WorkloadConfig,)),
        with_limits=not args.no_limits,
        with_profile=args.profile is not None,
        trace=args.trace,
        note=note,
    )
    show(throughput_report(measured), measured.profile, args.profile, as_json=args.json)
    return 0
