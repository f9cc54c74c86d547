"""What a simulation found, as JSON and as a table for people."""

from collections.abc import Mapping
from typing import Any

_TIMES = (
    ("queueing", "queueing"),
    ("ttft", "time to first token"),
    ("itl", "between tokens"),
    ("e2e", "whole request"),
)
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def summarize(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the report of `Simulator.report()` in the units that people use.

    Times are in milliseconds, percentiles within 0.8 %. Shares are of 1.
    """
    seconds = found["duration_ns"] / 1e9
    engine_ns = found["num_engines"] * found["duration_ns"]
    series = found["series"]
    blocks = found["num_engines"] * found["kv_blocks_each"]
    points = len(series["waiting"])
    report: dict[str, Any] = {
        "engines": found["num_engines"],
        "kv_blocks_per_engine": found["kv_blocks_each"],
        "simulated_s": seconds,
        "requests": found["num_finished"],
        "refused": found["num_refused"],
        "failed": found["num_failed"],
        "preemptions": found["preemptions"],
        "requests_per_s": _share(found["num_finished"], seconds),
        "prompt_tokens_per_s": _share(found["prompt_tokens"], seconds),
        "output_tokens_per_s": _share(found["generated_tokens"], seconds),
        "cache_hit_rate": _share(found["cached_tokens"], found["prompt_tokens"]),
        "mean_requests_per_step": _share(found["step_requests"], found["num_steps"]),
        "mean_tokens_per_step": _share(found["step_tokens"], found["num_steps"]),
        "utilization": {
            "busy": _share(found["busy_ns"], engine_ns),
            "least_busy_engine": _share(found["least_busy_ns"], found["duration_ns"]),
            "most_busy_engine": _share(found["most_busy_ns"], found["duration_ns"]),
            "compute_of_busy": _share(found["compute_ns"], found["busy_ns"]),
            "memory_of_busy": _share(found["memory_ns"], found["busy_ns"]),
            "kv_cache": _share(sum(series["kv_blocks_used"]) / points, blocks),
        },
        "mean_waiting": sum(series["waiting"]) / points,
        "peak_waiting": max(series["waiting"]),
    }
    for name, _ in _TIMES:
        report[f"{name}_ms"] = {key: found[name][key] / 1e6 for key in _COLUMNS}
    return report


def series_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the course of the simulation: `interval_s` and a list for each quantity."""
    columns = {key: value for key, value in found["series"].items() if key != "width_ns"}
    return {"interval_s": found["series"]["width_ns"] / 1e9, **columns}


def table(report: Mapping[str, Any]) -> str:
    """Returns the report for people."""
    use = report["utilization"]
    rows = [
        (
            "requests",
            f"{report['requests']:,} finished, {report['refused']:,} refused,"
            f" {report['failed']:,} failed in {report['simulated_s']:,.1f} s",
        ),
        (
            "throughput",
            f"{report['requests_per_s']:,.2f} requests/s,"
            f" {report['prompt_tokens_per_s']:,.0f} prompt tokens/s,"
            f" {report['output_tokens_per_s']:,.0f} output tokens/s",
        ),
        ("prefix cache", f"{_percent(report['cache_hit_rate'])} of prompt tokens"),
        (
            "engines",
            f"{report['engines']:,}, busy {_percent(use['busy'])} of the time"
            f" ({_percent(use['least_busy_engine'])} to {_percent(use['most_busy_engine'])})",
        ),
        (
            "steps",
            f"{report['mean_requests_per_step']:,.1f} requests and"
            f" {report['mean_tokens_per_step']:,.1f} tokens in the mean;"
            f" {_percent(use['compute_of_busy'])} of their time is arithmetic,"
            f" {_percent(use['memory_of_busy'])} memory traffic",
        ),
        (
            "KV cache",
            f"{report['kv_blocks_per_engine']:,} blocks an engine, {_percent(use['kv_cache'])} used"
            f" by requests; {report['preemptions']:,} preemptions",
        ),
        (
            "queue",
            f"{report['mean_waiting']:,.1f} requests in the mean,"
            f" {report['peak_waiting']:,.0f} at most",
        ),
    ]
    width = max(len(title) for _, title in _TIMES) + 2
    lines = [f"{name:<{width}}{text}" for name, text in rows]
    lines += ["", "ms".ljust(width) + "".join(f"{column:>11}" for column in _COLUMNS)]
    for name, title in _TIMES:
        times = report[f"{name}_ms"]
        lines.append(title.ljust(width) + "".join(f"{times[c]:>11,.1f}" for c in _COLUMNS))
    return "\n".join(lines)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
