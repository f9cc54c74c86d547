"""The options of `pagemill bench sweep`."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.config import Range, option
from pagemill.config.fields import check


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """Sweep: what is measured, and where the results go."""

    grid: str | None = option(
        None,
        'JSON file with the values to combine: {"server": {"max-num-seqs": [16, 64]}, "load":'
        ' {"request-rate": [1, 4, "inf"]}}. "server" takes the options of `pagemill serve` and'
        ' "load" those of `pagemill bench serve`; a value that is not a list holds for all.',
        kind="positional",
    )
    output: str = option(
        "sweep.jsonl",
        "File with a line of JSON for each run. Runs that it holds already are not repeated.",
        short="o",
    )
    num_iters: int = option(
        3, "Runs of each combination; the median is reported.", allowed=Range(1, 1000)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
