"""Rows of encoders and classifiers to compare with, beside the checkpoint that they are of.

The reference is the CPU's engine in f32, which the tests of encoders hold against transformers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pagemill.inputs.task import Task

from tools.gpu.reference import BF16_FACTOR, F32_BOUND
from tools.gpu.started import Started, start

_FILE = "pooled.json"
_BF16_LEAST = 0.01
_DIGITS = 7  # that are kept of numbers


@dataclass(frozen=True, slots=True)
class PooledReference:
    """`rows` of all `prompts`, for `task`; `bf16_error` of the CPU in bf16, relative to them."""

    task: str
    prompts: list[list[int]]
    rows: list[list[float]]
    bf16_error: float = math.nan

    def save(self, folder: Path) -> None:
        """Write it beside the checkpoint in `folder`."""
        (folder / _FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> PooledReference | None:
        """That of the checkpoint in `folder`; None: it is of a model that generates."""
        path = folder / _FILE
        return cls(**json.loads(path.read_text())) if path.exists() else None

    @classmethod
    def of(
        cls, folder: Path, task: Task, prompts: list[list[int]], flags: Mapping[str, Any]
    ) -> PooledReference:
        """What the CPU computes of the checkpoint in `folder`."""
        with start(folder, "cpu", "f32", flags, task) as started:
            rows = started.pool(prompts).astype(np.float64)
        kept = [[float(f"{number:.{_DIGITS}g}") for number in row] for row in rows.tolist()]
        exact = cls(task.value, prompts, kept)
        with start(folder, "cpu", "bf16", flags, task) as started:
            return cls(task.value, prompts, kept, exact.error(started))

    def error(self, started: Started) -> float:
        """The norm of the difference over the norm of the reference."""
        expected = np.array(self.rows)
        difference = started.pool(self.prompts) - expected
        return float(np.linalg.norm(difference) / np.linalg.norm(expected))

    def record(self, started: Started, dtype: str) -> dict[str, Any]:
        """The fields of a result."""
        error = self.error(started)
        bound = F32_BOUND if dtype == "f32" else max(_BF16_LEAST, BF16_FACTOR * self.bf16_error)
        return {
            "what": "parity",
            "error": error,
            "compared": len(self.rows),
            "bound": bound,
            "passed": error <= bound,
        }
