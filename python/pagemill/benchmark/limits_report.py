"""What this machine reads and multiplies at most: the report of `pagemill bench limits`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pagemill import _native
from pagemill.benchmark.machine_limits import MachineLimits, peak_of_kernel
from pagemill.benchmark.machine_load import MachineLoad
from pagemill.config import EngineConfig
from pagemill.engine.model_plan import known_model, model_path
from pagemill.engine.model_work import ModelWork, model_work

_SIZES = (2**20, 2**25)
_READ_SECONDS = 0.4
_PEAK_SECONDS = 0.3


def limits_report(config: EngineConfig, note: Callable[[str], None]) -> dict[str, Any]:
    """Measures for up to 20 s; `note` gets a line for each measurement.

    Rates are bytes and operations per second, `one_thread` and `all_threads`. `model` is None if
    no model is named and the default model is not cached. `other_cores` is how many cores other
    processes used meanwhile.
    """
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
        "read": _measure_reading(work.weight_bytes if work else None, counts, note),
        "multiply": _measure_multiplying(counts, note),
    }
    report["model"] = _model_limits(config, report, work) if work else None
    report["other_cores"] = load.other_cores()
    report["seconds"] = time.monotonic() - begin
    return report


def _measure_reading(
    weight_bytes: int | None, counts: Sequence[int], note: Callable[[str], None]
) -> list[dict[str, Any]]:
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


def _measure_multiplying(
    counts: Sequence[int], note: Callable[[str], None]
) -> list[dict[str, Any]]:
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


def _model_limits(config: EngineConfig, report: dict[str, Any], work: ModelWork) -> dict[str, Any]:

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
