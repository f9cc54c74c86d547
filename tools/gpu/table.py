"""The results of a check as a table in Markdown: what was reached, of which limit, and the target.

Limits and results are of one run on one device. Targets are shares of these limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.gpu.results import PASSED, Results

Record = dict[str, Any]

_DECODE_TARGETS = {1: 0.85, 64: 0.75, 256: 0.70}  # of the copy bandwidth
_PREFILL_TARGET = 0.75  # of cuBLASLt's rate
_HOST_TARGET_US = 50.0
_GRAPHS_TARGET_S, _GRAPHS = 1.0, 20
_READY_TARGET_S = 3.0  # and the time to bring the weights to the device
_WITH_TARGETS = ("bf16", "fp8")
# Stages that measure a model.
_OTHERS = ("awq", "experts", "states", "latents", "nvfp4", "experts-fp8", "offload")
_MEASURED = (*_WITH_TARGETS, *_OTHERS)
# Stages whose items all have to pass: how their names end, and what they are called.
_CHECKS = (
    ("conformance", "", "conformance"),
    ("tiny", "/f32", "tiny models in f32"),
    ("tiny", "/bf16", "tiny models in bf16"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """`target`, None: there is none; `met` only counts with a target."""

    what: str
    reached: str
    share: str = ""
    target: str = ""
    met: bool | None = None

    def line(self) -> str:
        """As a row of a table in Markdown."""
        mark = {True: "yes", False: "**no**", None: ""}[self.met]
        return f"| {self.what} | {self.reached} | {self.share} | {self.target} | {mark} |"


def table(results: Results) -> str:
    """The whole table, with a line for all that did not pass."""
    limits = next(iter(results.records("limits")), None)
    lines = [f"# {limits['device'] if limits else 'A device'}", ""]
    if limits is not None:
        lines += [_limits(limits), ""]
    lines += ["| what | reached | share of the limit | target | met |", "|---|---|---|---|---|"]
    lines += [row.line() for row in _rows(results, limits)]
    lines += ["", *_outcomes(results)]
    return "\n".join(lines) + "\n"


def _limits(limits: Record) -> str:
    copy, upload = limits["copy_bytes_per_s"] / 1e9, limits["upload_bytes_per_s"] / 1e9
    rate = limits["flop_per_s"] / 1e12
    return (
        f"Limits, measured by torch {limits['torch']} in the same run: copying {copy:,.0f} GB/s,"
        f" host to device {upload:,.1f} GB/s, bf16 products {rate:,.0f} TFLOP/s."
    )


def _rows(results: Results, limits: Record | None) -> Iterator[Row]:
    for stage, end, what in _CHECKS:
        statuses = [
            status
            for status, names in results.by_status(stage).items()
            for name in names
            if name.endswith(end)
        ]
        if not statuses:
            continue
        passed, refused = statuses.count(PASSED), statuses.count("refused")
        reached = f"{passed} of {len(statuses)}" + (f", {refused} refused" if refused else "")
        yield Row(what, reached, target="all", met=passed + refused == len(statuses))
    for stage in _MEASURED:
        yield from _anchors(results, stage, limits)
    for record in results.records("host"):
        us = record["host_us"]
        target = f"below {_HOST_TARGET_US:.0f} us"
        what = f"host work of a step, {record['batch']} requests"
        yield Row(what, f"{us:.0f} us", target=target, met=us < _HOST_TARGET_US)


def _anchors(results: Results, stage: str, limits: Record | None) -> Iterator[Row]:
    prefix = f"{stage}/"
    for record in results.records("parity", prefix):
        reached = f"{record['error']:.3g}"
        target = f"at most {record['bound']:.3g}"
        of = f" of {record['of']}" if record.get("of") else ""
        what = f"{stage}: log probabilities{of} differ by"
        yield Row(what, reached, target=target, met=bool(record["passed"]))
    for record in results.records("decode", prefix):
        yield _decode(stage, record, limits)
    for record in results.records("prefill", prefix):
        yield _prefill(stage, record, limits)
    for record in results.records("sampled", prefix):
        what = f"{stage}: {record['batch']} requests, {record['how']}"
        yield Row(what, f"{1e3 * record['step_s']:.2f} ms a step")
    for record in results.records("scored", prefix):
        what = f"{stage}: prompt of {record['tokens']} with log probabilities"
        yield Row(what, f"{record['seconds']:.3f} s")
    for record in results.records("graphs", prefix):
        seconds = record["seconds"] * _GRAPHS / record["graphs"]
        target = f"below {_GRAPHS_TARGET_S:.0f} s"
        what = f"{stage}: recording {_GRAPHS} graphs"
        yield Row(what, f"{seconds:.2f} s", target=target, met=seconds < _GRAPHS_TARGET_S)
    for record in results.records("ready", prefix):
        yield _ready(stage, record, limits)
    for record in results.records("memory", prefix):
        planned, used = record["planned"] / 2**30, record["used"] / 2**30
        reached = f"{used:.2f} GiB of {planned:.2f} planned"
        met = used <= planned
        yield Row(f"{stage}: memory", reached, target="not above the plan", met=met)


def _decode(stage: str, record: Record, limits: Record | None) -> Row:
    batch = record["batch"]
    what = f"{stage}: decoding {batch} requests, context {record['context']}"
    reached = f"{record['tokens_per_s']:,.0f} tokens/s, {1e3 * record['step_s']:.2f} ms a step"
    if limits is None:
        return Row(what, reached)
    share = record["bytes"] / record["step_s"] / limits["copy_bytes_per_s"]
    target = _DECODE_TARGETS.get(batch) if stage in _WITH_TARGETS else None
    return _share(what, reached, share, target)


def _prefill(stage: str, record: Record, limits: Record | None) -> Row:
    what = f"{stage}: prompt of {record['tokens']}"
    reached = f"{record['tokens'] / record['seconds']:,.0f} tokens/s, {record['seconds']:.3f} s"
    if limits is None:
        return Row(what, reached)
    share = record["operations"] / record["seconds"] / limits["flop_per_s"]
    return _share(what, reached, share, _PREFILL_TARGET if stage == "bf16" else None)


def _share(what: str, reached: str, share: float, target: float | None) -> Row:
    if target is None:
        return Row(what, reached, f"{share:.0%}")
    return Row(what, reached, f"{share:.0%}", f"{target:.0%}", share >= target)


def _ready(stage: str, record: Record, limits: Record | None) -> Row:
    what, seconds = f"{stage}: ready", record["first_token_s"]
    parts = f"program {record['built_s']:.1f} s, weights {record['engine_s']:.1f} s"
    reached = f"{seconds:.1f} s ({parts})"
    if limits is None:
        return Row(what, reached)
    most = _READY_TARGET_S + record["weight_bytes"] / limits["upload_bytes_per_s"]
    return Row(what, reached, target=f"at most {most:.1f} s", met=seconds <= most)


def _outcomes(results: Results) -> Iterator[str]:
    """A line for each status but passed, of each stage; then what failed within items."""
    for stage in results.stages():
        for status, names in results.by_status(stage).items():
            if status != PASSED:
                yield f"- {stage}, {status}: {', '.join(names)}"
    for record in results.records("error"):
        yield f"- {record['of']}: {record['error']}"
