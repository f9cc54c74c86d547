"""`pagemill bench limits`: what this machine reads and multiplies at most."""

import json
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser

if TYPE_CHECKING:
    from pagemill.cli.model_work import ModelWork

_SIZES = (2**20, 2**25)
_READ_SECONDS = 0.4
_PEAK_SECONDS = 0.3
_QUIET_CORES = 0.1


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench limits",
        "Measures what this machine can do at most, in under 20 seconds: how fast it reads buffers"
        " of 1 MiB, 32 MiB and the size of the model's weights, and how fast it multiplies with"
        " each of its instruction sets, on one thread and on all. From these follow the limits of"
        " the model: a token cannot take less time than reading the weights once, a prompt not less"
        " than its multiplications. The other bench commands measure the same for a second and"
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
    from pagemill import _native
    from pagemill.cli.machine_load import MachineLoad
    from pagemill.cli.model_plan import known_model
    from pagemill.cli.model_work import model_work

    config = parser.read(EngineConfig, args)
    threads = config.executor.threads or _native.detect_capabilities().cores
    begin, load = time.monotonic(), MachineLoad()
    known = known_model(config)
    work = model_work(known) if known else None
    counts = sorted({1, threads})
    report: dict[str, Any] = {
        "isa": str(_native.detect_capabilities()),
        "threads": threads,
        "caches": [
            {"level": level, "bytes": size, "cpus": cpus}
            for level, size, cpus in _native.data_caches()
        ],
        "read": _measure_reading(work.weight_bytes if work else None, counts),
        "multiply": _measure_multiplying(counts),
    }
    report["model"] = _model_limits(config, report, work) if work else None
    report["other_cores"] = load.other_cores()
    report["seconds"] = time.monotonic() - begin
    print(json.dumps(report, indent=2) if args.json else "\n".join(_lines(report)))
    return 0


def _measure_reading(weight_bytes: int | None, counts: Sequence[int]) -> list[dict[str, Any]]:
    from pagemill import _native
    from pagemill.cli.bench_report import note

    sizes = [(size, f"{size // 2**20} MiB") for size in _SIZES]
    if weight_bytes is not None:
        sizes.append((weight_bytes, f"{weight_bytes / 2**20:.0f} MiB, the weights"))
    rows: list[dict[str, Any]] = []
    for size, name in sizes:
        note(f"reading {name} ...")
        rates = [
            _native.measure_read_bandwidth(size, threads=count, seconds=_READ_SECONDS)
            for count in counts
        ]
        rows.append({"bytes": size, "name": name, **_by_threads(rates)})
    return rows


def _measure_multiplying(counts: Sequence[int]) -> list[dict[str, Any]]:
    from pagemill import _native
    from pagemill.cli.bench_report import note

    rows: list[dict[str, Any]] = []
    for peak in _native.present_peaks():
        note(f"multiplying {' '.join(peak)} ...")
        rates = [
            _native.measure_peak(peak, threads=count, seconds=_PEAK_SECONDS) for count in counts
        ]
        isa, number_format, operands = peak
        named = {"isa": isa, "format": number_format, "operands": operands}
        rows.append({**named, **_by_threads(rates)})
    return rows


def _by_threads(rates: Sequence[float]) -> dict[str, float]:
    """The same twice if there is one thread."""
    return {"one_thread": rates[0], "all_threads": rates[-1]}


def _model_limits(
    config: EngineConfig, report: dict[str, Any], work: "ModelWork"
) -> dict[str, Any]:
    from pagemill.cli.machine_limits import MachineLimits, peak_of_kernel
    from pagemill.cli.model_plan import model_path

    rates = {(r["isa"], r["format"], r["operands"]): r["all_threads"] for r in report["multiply"]}
    names = {kernel: peak_of_kernel(kernel, list(rates)) for kernel in work.kernels}
    limits = MachineLimits(
        work=work,
        threads=report["threads"],
        read_bytes_per_s=report["read"][-1]["all_threads"],
        peaks={kernel: rates[peak] for kernel, peak in names.items()},
        peak_names=names,
    )
    return {"path": str(model_path(config.model)), **limits.as_json()}


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
