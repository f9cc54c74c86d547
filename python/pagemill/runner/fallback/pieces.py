"""Whether texts may run in pieces and beside each other: the last check of a loaded module.

A dry run sees attention only. A layer that mixes tokens in another way (a convolution over time, a
shift by one token), or ignores positions, would give wrong tokens without any error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagemill.models.base import ModelConfigError
from pagemill.runner.simple_batch import SimpleBatch

BLOCKS = 64
"""What the steps of the check need for each block table, at most."""
_LENGTH, _CUT = 9, 4  # tokens
_TEXTS = 3
# As a share of the largest output. Sums in another order differ by less; what is computed from
# other tokens, by more.
_TOLERANCES = {"f32": 1e-3, "bf16": 0.1, "f16": 0.02}

Run = Callable[[dict[str, Any]], npt.NDArray[np.float32]]


def check_pieces(
    run: Run, block_sizes: Sequence[int], vocab_size: int, *, causal: bool, dtype: str
) -> None:
    """Runs a text alone and again beside another, if `causal` in two steps; `run` gives the row of
    each request, computed in `dtype`; `block_sizes` are the tokens of a block in each of its block
    tables.

    Raises:
        ModelConfigError: the results differ for each of a few texts. For one they may: rounding
            can decide which experts are chosen.
    """
    for number in range(_TEXTS):
        text = [(7 * i + 5 + number) % vocab_size for i in range(_LENGTH)]
        other = [(11 * i + 3 + number) % vocab_size for i in range(_LENGTH)]
        if _difference(run, block_sizes, text, other, causal=causal) <= _TOLERANCES[dtype]:
            return
    raise ModelConfigError(
        "the module cannot run by the fallback to transformers: a text gives another result in"
        " pieces beside another text than alone, so something besides attention passes from token"
        " to token"
    )


def _difference(
    run: Run, block_sizes: Sequence[int], text: Sequence[int], other: Sequence[int], *, causal: bool
) -> float:
    batch = SimpleBatch(BLOCKS * max(1, len(block_sizes)), block_sizes)
    alone = run(batch.step({0: text}))[0]
    cuts: Sequence[slice] = [slice(0, _CUT), slice(_CUT, None)] if causal else [slice(None)]
    beside = alone
    for cut in cuts:
        beside = run(batch.step({1: other[cut], 2: text[cut]}))[1]
    return float(np.abs(beside - alone).max() / np.abs(alone).max())
