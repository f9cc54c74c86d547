"""Linear layers of Gemma 4's encoders, which may clamp what they read and write.

Weights: `linear.weight` and, if it clamps, the bounds `{input,output}_{min,max}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import ModelConfigError
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_LARGEST = float(np.finfo(np.float32).max)


def clamped_linear(
    weights: Weights, name: str, x: Tensor, row_shape: Sequence[int], *, clamps: bool
) -> Tensor:
    """The layer `name` of x, between its bounds if it `clamps`.

    Raises:
        ModelConfigError: bounds leave nothing between them, or nothing above 0.
    """
    if not clamps:
        return linear(weights, f"{name}.linear", x, row_shape)
    x = _clamp(weights, f"{name}.input", x)
    return _clamp(weights, f"{name}.output", linear(weights, f"{name}.linear", x, row_shape))


def _clamp(weights: Weights, name: str, x: Tensor) -> Tensor:
    lower, limit = (weights.number(f"{name}_{end}", finite=False) for end in ("min", "max"))
    if limit <= 0 or lower > limit:
        raise ModelConfigError(f"{name}_min and {name}_max are {lower:g} and {limit:g}")
    if (lower, limit) == (-math.inf, math.inf):
        return x
    lower, limit = max(lower, -_LARGEST), min(limit, _LARGEST)
    return ops.activation(x, ActivationKind.IDENTITY, limit=limit, lower=lower)
