"""Where the time of a run's steps went: the table of `--profile`.

profile = RunProfile(core.runner)
profile.start()
...                       # requests come and end
print(profile.table("ops"))
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pagemill import _native

_KINDS = {"decode": True, "prompt": False}
_TITLES = {"decode": "steps with a token a request", "prompt": "steps with prompts"}
_BAR = 40  # characters of the slowest layer

Grouping = Literal["ops", "layers"]
_HEADER = ("part", "matrix", "kernel", "calls", "ms", "share", "waiting", "GB/s", "GFLOP/s")


@dataclass(frozen=True, slots=True)
class Part:
    """One row; figures are of one step, on average."""

    part: str
    """An op, or one of "batch", "walk", "sampling", "between"."""
    matrix: str
    kernel: str
    calls: float
    ms: float
    share: float
    """Of the time from one step to the next."""
    waiting: float | None
    """Of the threads' time during the op."""
    gb_per_s: float | None
    gflop_per_s: float | None


def parts_of(profile: _native.StepProfile) -> list[Part]:
    """Returns what a step consists of, its ops first, the slowest first; [] where none ran."""
    steps = profile.steps
    total = profile.batch_s + profile.model_s + profile.sampling_s + profile.between_s
    if not steps or not total:
        return []
    parts = [
        Part(
            part=op.op,
            matrix=op.matrix,
            kernel=op.kernel,
            calls=op.calls / steps,
            ms=1e3 * op.seconds / steps,
            share=op.seconds / total,
            waiting=op.waited_s / (op.seconds * profile.num_threads) if op.seconds else None,
            gb_per_s=op.bytes / op.seconds / 1e9 if op.seconds else None,
            gflop_per_s=op.operations / op.seconds / 1e9 if op.operations and op.seconds else None,
        )
        for op in profile.ops
    ]
    in_ops = sum(op.seconds for op in profile.ops)
    rest = {
        "walk" if profile.ops else "model": profile.model_s - in_ops,
        "batch": profile.batch_s,
        "sampling": profile.sampling_s,
        "between": profile.between_s,
    }
    parts += [
        Part(name, "", "", 1.0, 1e3 * seconds / steps, seconds / total, None, None, None)
        for name, seconds in rest.items()
    ]
    return parts


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; figures are of one step, on average."""

    layer: str
    """`layer.0`, to which what comes before belongs; `end` for what comes after the last."""
    ms: float
    share: float
    """Of the time in ops."""


def layers_of(profile: _native.StepProfile) -> list[Layer]:
    """Returns the layers of a step in their order; [] if none ran."""
    total = sum(entry.seconds for entry in profile.layers)
    if not profile.steps or not total:
        return []
    return [
        Layer(entry.layer, 1e3 * entry.seconds / profile.steps, entry.seconds / total)
        for entry in profile.layers
    ]


class RunProfile:
    """The profile of what a runner does from `start` on."""

    def __init__(self, runner: _native.ModelRunner) -> None:
        """Takes the runner of a running engine."""
        self._runner = runner

    def start(self) -> None:
        """Forgets what was and measures from now on. No request may run."""
        self._runner.set_profiling(True)

    def as_json(self) -> dict[str, object]:
        """Returns kind of step -> number of steps and their parts. No request may run."""
        kinds: dict[str, object] = {}
        for kind, decode in _KINDS.items():
            profile = self._runner.profile(decode=decode)
            parts = [asdict(part) for part in parts_of(profile)]
            layers = [asdict(layer) for layer in layers_of(profile)]
            kinds[kind] = {"steps": profile.steps, "parts": parts, "layers": layers}
        return kinds

    def table(self, by: Grouping) -> str:
        """Returns the parts or the layers for people. No request may run."""
        texts: list[str] = []
        for kind, decode in _KINDS.items():
            profile = self._runner.profile(decode=decode)
            title = f"{profile.steps} {_TITLES[kind]}, a step"
            if by == "layers" and (layers := layers_of(profile)):
                texts.append(_layer_table(title, layers))
            elif by == "ops" and (parts := parts_of(profile)):
                texts.append(_table(title, parts))
        return "\n\n".join(texts)


def _table(title: str, parts: list[Part]) -> str:
    rows = [_HEADER, *(_row(part) for part in parts)]
    ms = sum(part.ms for part in parts)
    in_ops = sum(part.ms for part in parts if part.waiting is not None)
    waited = sum(part.ms * part.waiting for part in parts if part.waiting is not None)
    waiting = f"{100 * waited / in_ops:.1f} %" if in_ops else ""
    rows.append(("all", "", "", "", f"{ms:.3f}", "", waiting, "", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = [title]
    for row in rows:
        names = [text.ljust(width) for text, width in zip(row[:3], widths[:3], strict=True)]
        figures = [text.rjust(width) for text, width in zip(row[3:], widths[3:], strict=True)]
        lines.append("  ".join(names + figures).rstrip())
    return "\n".join(lines)


def _layer_table(title: str, layers: list[Layer]) -> str:
    width = max(len(layer.layer) for layer in layers)
    largest = max(layer.ms for layer in layers)
    lines = [title]
    for layer in layers:
        bar = "#" * round(_BAR * layer.ms / largest)
        share = f"{100 * layer.share:.1f} %"
        lines.append(f"{layer.layer:<{width}}  {layer.ms:8.3f} ms  {share:>6}  {bar}".rstrip())
    lines.append(f"{'all':<{width}}  {sum(layer.ms for layer in layers):8.3f} ms")
    return "\n".join(lines)


def _row(part: Part) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"

    return (
        part.part,
        part.matrix,
        part.kernel,
        shown(part.calls),
        f"{part.ms:.3f}",
        f"{100 * part.share:.1f} %",
        "" if part.waiting is None else f"{100 * part.waiting:.1f} %",
        shown(part.gb_per_s),
        shown(part.gflop_per_s),
    )
