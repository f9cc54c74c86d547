"""`pagemill bench latency`: one batch, from its submission to its last token."""

from argparse import Namespace

from pagemill.cli.bench_offline import offline_parser, run_and_print
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    return offline_parser(
        "pagemill bench latency",
        "Times one batch of requests from submission to the last token, offline. With one request"
        " (--num-prompts 1) it is single-stream decoding. What is achieved is compared with the"
        " machine's limits, measured just before: no step is shorter than reading the weights once,"
        " or than the multiplications that its tokens need (docs/performance.md).",
        "pagemill bench latency --num-prompts 1\npagemill bench latency model.gguf --input-len 1k",
    )


def run(parser: FlagParser, args: Namespace) -> int:
    """Runs the benchmark and prints its report."""
    from pagemill.benchmark.offline_report import latency_report

    return run_and_print(parser, args, latency_report)
