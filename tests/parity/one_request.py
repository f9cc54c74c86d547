"""A prompt and the token after it, by an executor and by `transformers`."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from tests.parity.executors import Run, new_batches


def difference(run: Run, reference: PreTrainedModel) -> float:
    """The largest difference of two logits, relative to the largest logit (or to 1)."""
    tokens = np.random.default_rng(2).integers(0, reference.config.vocab_size, 45).tolist()
    with torch.no_grad():
        expected = reference(torch.tensor([tokens])).logits[0].numpy()
    batches = new_batches(run)
    prompt = run(batches.step({0: tokens[:-1]}, all_logits=True))["logits"]
    last = run(batches.step({0: tokens[-1:]}))["logits"]
    largest = np.abs(np.concatenate([prompt, last]) - expected).max()
    return float(largest / max(1.0, np.abs(expected).max()))
