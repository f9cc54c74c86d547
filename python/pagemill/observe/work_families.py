"""Estimates of what steps computed and read, from the engine's counters and the model's work for a
token (`--enable-mfu-metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pagemill.observe.snapshot import EngineSnapshot


class StepWork(Protocol):
    """The work of a model's matrix multiplications on one device."""

    def operations(self, tokens: float, logits_rows: float) -> Mapping[str, float]:
        """Floating-point operations of so many tokens and rows of logits, by kernel."""
        ...

    def bytes_of_step(self, tokens: float) -> float:
        """Weights that a step of so many tokens reads."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """A counter that follows from the engine's statistics and the model's work."""

    name: str
    help: str
    total: Callable[[EngineSnapshot, StepWork], float]


def _rejected_drafts(stats: EngineSnapshot) -> int:
    return stats.draft_tokens - stats.accepted_draft_tokens


def _computed_tokens(stats: EngineSnapshot) -> int:
    computed = stats.prompt_tokens - stats.prefix_cache_hit_tokens + stats.generation_tokens
    return computed + _rejected_drafts(stats)


def _operations(stats: EngineSnapshot, work: StepWork) -> float:
    logits_rows = stats.generation_tokens + _rejected_drafts(stats)
    return sum(work.operations(_computed_tokens(stats), logits_rows).values())


def _read_bytes(stats: EngineSnapshot, work: StepWork) -> float:
    """As if all steps had the same tokens: which experts a step reads depends on their number."""
    steps = stats.num_steps
    return steps * work.bytes_of_step(_computed_tokens(stats) / steps) if steps else 0.0


ESTIMATES = (
    Estimate(
        "estimated_flops",
        "Floating-point operations of the matrix multiplications with weights, on one device;"
        " attention is left out (--enable-mfu-metrics).",
        _operations,
    ),
    Estimate(
        "estimated_read_bytes",
        "Bytes of weights that steps read, on one device; the KV cache is left out"
        " (--enable-mfu-metrics).",
        _read_bytes,
    ),
)
