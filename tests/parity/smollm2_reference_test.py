"""smollm2_reference.json equals what `transformers` computes now."""

from __future__ import annotations

import pytest

from tests.parity.smollm2 import load, make_inputs, open_gguf
from tests.parity.smollm2_reference import compute

# f32 summed in another order moves a window's mean by some 1e-6.
LOSS_TOLERANCE = 1e-4


def test_stored_results() -> None:
    inputs = make_inputs(open_gguf())
    for form, computed in compute(inputs).items():
        stored = load(inputs, form)
        assert stored.losses == pytest.approx(computed.losses, abs=LOSS_TOLERANCE)
        for expected, actual in zip(stored.choices, computed.choices, strict=True):
            for old, new in zip(expected, actual, strict=True):
                assert old[0] in new and new[0] in old
                if old[0] != new[0]:
                    break  # a near tie: later tokens have another context
