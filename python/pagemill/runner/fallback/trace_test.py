"""What a mask of the library lets queries see, and texts that do not run in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from transformers import masking_utils

from pagemill.models.base import ModelConfigError
from pagemill.runner.fallback.pieces import check_pieces
from pagemill.runner.fallback.trace import visibility


def test_masks():
    causal = masking_utils.causal_mask_function
    assert visibility(causal, 100) == 0
    assert visibility(masking_utils.bidirectional_mask_function, 100) == -1
    for window in (1, 7, 50):
        sliding = masking_utils.sliding_window_causal_mask_function(window)
        assert visibility(sliding, 100) == window
    sliding = masking_utils.sliding_window_causal_mask_function(100)
    assert visibility(sliding, 100) == 0  # nothing leaves it


def test_masks_that_are_refused():
    import torch

    none = torch.zeros(1, dtype=torch.int64)
    chunked = masking_utils.chunked_causal_mask_function
    assert visibility(chunked(8, none), 100) == -2
    assert visibility(chunked(100, none), 100) == 0  # all in the first chunk
    both = masking_utils.sliding_window_bidirectional_mask_function(7)
    assert visibility(both, 100) == -2


class _Sums:
    """A row is the sum of what its request has had: of all steps, or of this one only, as with a
    convolution that keeps nothing."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._cache = np.zeros(1 << 16)

    def __call__(self, batch: dict[str, Any]) -> npt.NDArray[np.float32]:
        starts, (table,) = batch["query_start"], batch["kv"]
        self._cache[table["slot_mapping"]] = batch["token_ids"]
        rows: list[list[float]] = []
        for request, length in enumerate(batch["seq_lens"]):
            blocks = table["block_table"][request]
            slots = (blocks[:, None] * 16 + np.arange(16)).reshape(-1)[:length]
            new = batch["token_ids"][starts[request] : starts[request + 1]]
            rows.append([float(self._cache[slots].sum() if self._keeps else new.sum())])
        return np.array(rows, np.float32)


def test_a_module_that_keeps_all_in_the_cache():
    check_pieces(_Sums(keeps=True), [16], 97, causal=True, dtype="f32")


def test_a_module_that_looks_beyond_attention():
    with pytest.raises(ModelConfigError, match="besides attention"):
        check_pieces(_Sums(keeps=False), [16], 97, causal=True, dtype="f32")
