"""Positions as sines and cosines of waves, which no checkpoint needs to have.

check_waves("d_model", hidden_size)
x = ops.add(x, waves(weights, x, positions, first=2, steps=hidden_size // 2 - 1))
"""

from __future__ import annotations

import math

from pagemill import ops
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.models.base import ModelConfigError
from pagemill.ops.concat import MAX_INPUTS
from pagemill.ops.trace import Tensor

_LONGEST_WAVE = 10_000.0  # over 2 pi, in positions
_MOST_PAIRS = 256  # of one rotary embedding


def check_waves(key: str, width: int) -> None:
    """Compares the width of vectors, which `key` of a configuration has, with what `waves` takes.

    Raises:
        ModelConfigError: it does not fit.
    """
    if width % (2 * MAX_INPUTS) or width > 2 * MAX_INPUTS * _MOST_PAIRS:
        raise ModelConfigError(
            f"{key}={width} is not supported by this family: it must be a multiple of"
            f" {2 * MAX_INPUTS}, at most {2 * MAX_INPUTS * _MOST_PAIRS}"
        )


def waves(weights: Weights, x: Tensor, positions: Tensor, *, first: int, steps: int) -> Tensor:
    """For each row of x [T, H], the sines and then the cosines of its position, plus `first`, in
    waves from 1 to `_LONGEST_WAVE`, which wave number `steps` is: [T, H]."""
    half = x.width // 2
    size = half // MAX_INPUTS  # pairs that one rotary embedding has
    slowest = math.log(_LONGEST_WAVE) / steps
    # The vector (0, 1), turned backward by an angle, is its sine and cosine. One such vector for
    # each row and pair: 0 times what is in x, plus the vector.
    zeros = norm.zeros(weights, 2 * size)
    rows = ops.rms_norm(ops.split(x, 2 * size)[0], zeros, eps=1.0, row_shape=(1, 2 * size))
    rows = ops.add(rows, weights.constant("not_turned", [0.0] * size + [1.0] * size))
    parts: list[tuple[Tensor, Tensor]] = []
    for begin in range(0, half, size):
        frequencies = [-math.exp(-slowest * i) for i in range(begin, begin + size)]
        backward = weights.constant(f"waves.{begin}", frequencies)
        turned, _ = ops.rotary(rows, rows, positions, backward, offset=first)
        parts.append(ops.split(turned, size))
    sines, cosines = zip(*parts, strict=True)
    return ops.concat(ops.concat(*sines), ops.concat(*cosines))
