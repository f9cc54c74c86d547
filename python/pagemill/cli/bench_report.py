"""What limits the benchmarks, and how they report."""

import sys
from dataclasses import dataclass
from typing import Any, cast

from pagemill.cli.bandwidth import read_bandwidth
from pagemill.cli.model_plan import ModelPlan, plan_model
from pagemill.config import EngineConfig


@dataclass(frozen=True, slots=True)
class DecodeLimit:
    """What reading the weights once for each step allows on this machine, just now."""

    bytes_per_step: int
    bandwidth: float  # bytes/s

    @property
    def steps_per_second(self) -> float:
        """The limit."""
        return self.bandwidth / self.bytes_per_step

    @classmethod
    def measure(cls, plan: ModelPlan, threads: int) -> "DecodeLimit":
        """Reads a block of the weights' size as fast as this machine can."""
        return cls(plan.weights, read_bandwidth(plan.weights, threads))


def decode_limit(config: EngineConfig) -> DecodeLimit:
    """Returns the limit for the configured model. Measure it before the model is loaded."""
    from pagemill import _native

    plan = plan_model(config)
    threads = config.executor.threads or _native.detect_capabilities().cores
    return DecodeLimit.measure(plan, threads)


def describe(report: dict[str, Any]) -> str:
    """Returns a report for people: one line an entry, numbers with three digits."""
    width = max(len(name) for name in report)
    lines: list[str] = []
    for name, value in report.items():
        if isinstance(value, float):
            shown = f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        elif isinstance(value, dict):
            entries = cast(dict[str, Any], value)
            shown = "  ".join(f"{key} {_short(item)}" for key, item in entries.items())
        else:
            shown = "-" if value is None else str(value)
        lines.append(f"{name.replace('_', ' '):<{width}}  {shown}")
    return "\n".join(lines)


def note(text: str) -> None:
    """Says what is going on, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _short(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else "-" if value is None else str(value)
