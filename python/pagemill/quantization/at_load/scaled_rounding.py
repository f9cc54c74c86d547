"""Elements of 8 bits times an f32 scale: int8 or f8_e4m3, a scale for a row or for a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill.quantization.at_load import e4m3
from pagemill.quantization.at_load.rounding import Floats, RoundedPart

_LARGEST = {"i8": 127.0, "f8_e4m3": e4m3.LARGEST}
_SMALLEST_SCALE = np.float32(2.0**-100)


@dataclass(frozen=True, slots=True)
class ScaledRounding:
    """The largest magnitude of a row, or of a block of `block` rows and columns, becomes the
    largest number of `dtype`. Activations are to be rounded, too: to `dtype`, when they are
    multiplied."""

    dtype: str
    block: int | None = None

    @property
    def section(self) -> Mapping[str, Any]:
        numbers = {"num_bits": 8, "type": "int" if self.dtype == "i8" else "float"}
        weights = numbers | {"symmetric": True, "strategy": "channel", "dynamic": False}
        activations = numbers | {"symmetric": True, "strategy": "token", "dynamic": True}
        if self.block is not None:
            weights |= {"strategy": "block", "block_structure": [self.block, self.block]}
            activations |= {"strategy": "group", "group_size": self.block}
        group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
        kind = "int" if self.dtype == "i8" else "float"
        return {
            "quant_method": "compressed-tensors",
            "format": f"{kind}-quantized",
            "config_groups": {"group_0": group},
        }

    @property
    def row_step(self) -> int:
        return self.block or 1

    def refusal(self, shape: Sequence[int]) -> str:
        # Stacks may have two matrices one below the other, which are multiplied in one call.
        if self.block is None or len(shape) == 2 or shape[1] % (2 * self.block) == 0:
            return ""
        return f"{shape[1]} rows of each are not a multiple of {2 * self.block}"

    def parts(self, columns: int) -> Sequence[RoundedPart]:
        scales = 1 if self.block is None else -(-columns // self.block)
        dtype = "I8" if self.dtype == "i8" else "F8_E4M3"
        return (
            RoundedPart("weight", dtype, 1, columns),
            RoundedPart("weight_scale", "F32", self.row_step, scales),
        )

    def round(self, values: Floats) -> Sequence[npt.NDArray[Any]]:
        largest = np.abs(values).max(axis=1, keepdims=True)
        if self.block is not None:
            largest = self._of_blocks(np.abs(values))
        scales = np.maximum(largest / np.float32(_LARGEST[self.dtype]), _SMALLEST_SCALE)
        spread = scales if self.block is None else self._spread(scales, values.shape)
        quotients = values / spread
        if self.dtype == "i8":
            return np.rint(quotients).astype(np.int8), scales
        return e4m3.to_e4m3(quotients), scales

    def _of_blocks(self, magnitudes: Floats) -> Floats:
        """The largest of each block; those at the end may be smaller."""
        assert self.block is not None
        rows, columns = (range(0, size, self.block) for size in magnitudes.shape)
        by_columns = np.maximum.reduceat(magnitudes, list(columns), axis=1)
        return np.maximum.reduceat(by_columns, list(rows), axis=0)

    def _spread(self, scales: Floats, shape: tuple[int, ...]) -> Floats:
        """A scale for each element."""
        assert self.block is not None
        rows = np.repeat(scales, self.block, axis=0)[: shape[0]]
        return np.repeat(rows, self.block, axis=1)[:, : shape[1]]
