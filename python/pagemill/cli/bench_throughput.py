"""`pagemill bench throughput`: tokens per second over many requests."""

from argparse import Namespace

from pagemill.cli.bench_offline import offline_parser, run_and_print
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    return offline_parser(
        "pagemill bench throughput",
        "Submits many requests at once, offline, and reports tokens per second over the whole run."
        " The limit given is that of a run without a pause: prompts first, then steps of up to"
        " --max-num-seqs requests, each as short as reading the weights once or its multiplications"
        " allow (docs/performance.md).",
        "pagemill bench throughput\n"
        "pagemill bench throughput --num-prompts 200 --input-len 512 --prefix-len 480\n"
        "pagemill bench throughput --dataset ShareGPT.json --max-request-len 2k",
    )


def run(parser: FlagParser, args: Namespace) -> int:
    """Runs the benchmark and prints its report."""
    from pagemill.benchmark.offline_report import throughput_report

    return run_and_print(parser, args, throughput_report)
