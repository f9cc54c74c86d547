"""Ways to round, of a model with experts."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.parity.tiny_models import make
from tools.gpu.reference import Reference
from tools.gpu.rounding import moved_differences

PROMPT, GENERATED = [3, 5, 7, 11], [2, 4]


def test_results_of_products_are_moved_by_their_last_place(tmp_path: Path) -> None:
    model = make("qwen3_moe", tmp_path)
    tokens = torch.tensor([[*PROMPT, *GENERATED]])
    with torch.inference_mode():
        logits = model(tokens).logits[0, :-1].double()
    logprobs = logits.log_softmax(-1)[range(len(logits)), tokens[0, 1:]]
    margins = [[0.0] * len(GENERATED)]
    reference = Reference("", [PROMPT], [GENERATED], [logprobs.tolist()], margins)
    errors = [each.error for each in moved_differences(model, reference)]
    # Some products of a few hundred terms: more than f32's, and a fraction of a logit.
    assert len({*errors}) == len(errors) > 1
    assert all(1e-4 < error < 0.5 for error in errors)
    assert errors == [each.error for each in moved_differences(model, reference)]
    with torch.inference_mode():  # nothing is left of it
        assert torch.equal(model(tokens).logits[0, :-1].double(), logits)
