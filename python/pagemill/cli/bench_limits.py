"""`pagemill bench limits`: what this machine reads and multiplies at most."""

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser

_QUIET_CORES = 0.1


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench limits",
        "Measures what this machine can do at most, in under 20 seconds: how fast it reads buffers"
        " of 1 MiB, 32 MiB and the size of the model's weights, and how fast it multiplies with"
        " each of its instruction sets, on one thread and on all. From these follow the limits of"
        " the model: a token cannot take less time than reading the weights once, a prompt not less"
        " than its multiplications. Latency, throughput and serve measure the same for a second and"
        " print what they achieved of it. The model is only looked at, and only where one is named"
        " or the default model is cached already. Operands are random; those of AMX come from L1"
        " or L2, all others stay in registers. Says so where other processes disturbed it.",
        "pagemill bench limits\npagemill bench limits model.gguf --threads 1 --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Measures and prints the report."""
    from pagemill.benchmark.limits_report import limits_report
    from pagemill.cli.bench_report import note

    report = limits_report(parser.read(EngineConfig, args), note)
    print(json.dumps(report, indent=2) if args.json else "\n".join(_lines(report)))
    return 0


def _lines(report: dict[str, Any]) -> Iterator[str]:
    threads = report["threads"]
    shown = "1 thread" if threads == 1 else f"{threads} threads"
    yield f"instruction sets  {report['isa'] or 'baseline'}"
    caches = [
        f"L{cache['level']} {cache['bytes'] // 2**10:,} KiB"
        + (f" for {cache['cpus']} CPUs" if cache["cpus"] > 1 else "")
        for cache in report["caches"]
    ]
    yield f"data caches       {', '.join(caches) or 'unknown'}"
    yield ""
    yield f"{'GB/s':<36}{'1 thread':>12}{shown:>14}"
    for row in report["read"]:
        yield _row(f"read {row['name']}", row)
    yield ""
    yield f"{'Gop/s (a multiply-add is two)':<36}{'1 thread':>12}{shown:>14}"
    for row in report["multiply"]:
        yield _row(f"{row['format']:<5} {row['isa']}, from {row['operands']}", row)
    if model := report["model"]:
        yield ""
        yield f"model             {model['path']}"
        yield f"one stream        {model['decode_tokens_per_s']:,.0f} tokens/s at most"
        per_s = f"{model['prefill_tokens_per_s']:,.0f} tokens/s at most"
        yield f"prefill           {per_s}, with the kernels it gets here ({model['multiply']})"
    others = report["other_cores"]
    if others is not None and others > _QUIET_CORES:
        yield ""
        yield f"DISTURBED: other processes used {others:.1f} cores meanwhile; these are no limits"


def _row(name: str, row: dict[str, Any]) -> str:
    return f"{name:<36}{row['one_thread'] / 1e9:>12,.1f}{row['all_threads'] / 1e9:>14,.1f}"
