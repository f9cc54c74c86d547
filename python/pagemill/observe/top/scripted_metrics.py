"""A server whose metrics a test writes."""

from __future__ import annotations

from dataclasses import dataclass, field

_MODEL = 'model_name="SmolLM2-135M-Instruct",engine="0"'
_HISTOGRAMS = {
    "time_to_first_token_seconds": (0.05, 0.1, 0.25, 0.5),
    "inter_token_latency_seconds": (0.005, 0.01, 0.025, 0.05),
    "request_queue_time_seconds": (0.01, 0.1, 1.0),
}


@dataclass(slots=True)
class ScriptedMetrics:
    """Numbers by name, and the text that a server would answer with."""

    values: dict[str, float] = field(default_factory=dict[str, float])
    """Families with no labels but those of the model; names with their suffix."""
    tenants: dict[str, tuple[float, float, float]] = field(
        default_factory=dict[str, tuple[float, float, float]]
    )
    """Requests, prompt tokens and generated tokens by tenant."""
    observed: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Values that a histogram was given."""
    away: str = ""
    """Why the server cannot be read."""

    def add(self, **counts: float) -> None:
        """Adds to counters, or moves gauges."""
        for name, count in counts.items():
            self.values[name] = self.values.get(name, 0.0) + count

    def observe(self, name: str, *values: float) -> None:
        """Gives values to a histogram."""
        self.observed.setdefault(name, []).extend(values)

    def read(self) -> str:
        """The text.

        Raises:
            ValueError: the server is away.
        """
        if self.away:
            raise ValueError(self.away)
        lines = [f"pagemill:{name}{{{_MODEL}}} {value}" for name, value in self.values.items()]
        for tenant, numbers in self.tenants.items():
            labels = f'{_MODEL},tenant="{tenant}",key="k"'
            names = ("tenant_requests", "tenant_prompt_tokens", "tenant_generation_tokens")
            for name, number in zip(names, numbers, strict=True):
                lines.append(f"pagemill:{name}_total{{{labels}}} {number}")
        for name, values in self.observed.items():
            for bound in (*_HISTOGRAMS[name], float("inf")):
                le = "+Inf" if bound == float("inf") else str(bound)
                below = sum(value <= bound for value in values)
                lines.append(f'pagemill:{name}_bucket{{{_MODEL},le="{le}"}} {below}')
        lines.append("process_cpu_seconds_total 1.0")
        return "\n".join(lines) + "\n"


class ScriptedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
