"""Numbers rounded to f8_e4m3 (`cc/tensor/float8.h`): to nearest, ties to even."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from pagemill.weights.read import e4m3_values

LARGEST = 448.0


def to_e4m3(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The codes of finite f32 numbers; those beyond the largest become the largest."""
    bits = values.view(np.uint32)
    # The upper 16 bits, the last of them set if one of the lower ones is: 8 bits of mantissa are
    # more than rounding to 3 looks at, and no tie arises that was none.
    short = (bits >> 16).astype(np.uint16)
    short |= (bits & 0xFFFF) != 0
    return _codes()[short]


@functools.cache
def _codes() -> npt.NDArray[np.uint8]:
    """The code of each number of 16 bits, the upper ones of an f32."""
    numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    known = e4m3_values()[:127]
    halfway = (known[1:] + known[:-1]) / 2
    magnitudes = np.nan_to_num(np.abs(numbers), nan=0.0, posinf=LARGEST)
    codes = np.searchsorted(halfway, magnitudes)  # the smaller code of a tie
    tie = codes < len(halfway)
    tie[tie] = halfway[codes[tie]] == magnitudes[tie]
    codes += tie & (codes % 2 == 1)
    return (codes | np.signbit(numbers) << 7).astype(np.uint8)
