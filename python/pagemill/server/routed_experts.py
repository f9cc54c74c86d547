"""How responses write the experts that a model chose."""

from __future__ import annotations

import base64
import io

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType


class RoutedExpertsFormatter:
    """Writes a choice's `routed_experts`."""

    def __init__(self, shape: tuple[int, int] | None, start: int) -> None:
        """`shape`: that of a token's experts, `ModelFacts.routed_experts`. `start`: so many tokens
        from the first on are left out."""
        self._shape = shape
        self._start = start

    def text(self, experts: npt.NDArray[np.uint16] | None) -> str | UnsetType:
        """`ChoiceOutput.routed_experts` as the base64 of a NumPy file, u16 [tokens, layers,
        choices]; UNSET for None."""
        if experts is None or self._shape is None:
            return UNSET
        file = io.BytesIO()
        np.save(file, experts.reshape(-1, *self._shape)[self._start :], allow_pickle=False)
        return base64.b64encode(file.getbuffer()).decode("ascii")
