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

BLOCKS, BLOCK_SIZE = 64, 16
"""What the steps of the check need for each block table, and the size of a block."""
_LENGTH, _CUT = 9, 4  # tokens
# As a share of the largest output. Sums in another order, in bf16, differ by less; what is computed
# from other tokens, by more.
_TOLERANCE = 0.1

Run = Callable[[dict[str, Any]], npt.NDArray[np.float32]]


def check_pieces(run: Run, num_tables: int, vocab_size: int, *, causal: bool) -> None:
    """Runs a text alone and again beside another, if `causal` in two steps; `run` gives the row of
    each request.

    Raises:
        ModelConfigError: the results differ.
    """
    text = [(7 * i + 5) % vocab_size for i in range(_LENGTH)]
    other = [(11 * i + 3) % vocab_size for i in range(_LENGTH)]
    batch = SimpleBatch(BLOCKS * max(1, num_tables), [BLOCK_SIZE] * num_tables)
    alone = run(batch.step({0: text}))[0]
    cuts: Sequence[slice] = [slice(0, _CUT), slice(_CUT, None)] if causal else [slice(None)]
    beside = alone
    for cut in cuts:
        beside = run(batch.step({1: other[cut], 2: text[cut]}))[1]
    scale = float(np.abs(alone).max())
    if not float(np.abs(beside - alone).max()) <= _TOLERANCE * scale:
        raise ModelConfigError(
            "the module cannot run by the fallback to transformers: a text gives another result in"
            " pieces beside another text than alone, so something besides attention passes from"
            " token to token"
        )
