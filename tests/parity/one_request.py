"""A prompt and the token after it, by an executor and by `transformers`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from tests.parity.executors import Run, new_batches

Array = npt.NDArray[np.float32]


class OneRequest:
    """The steps of a request, a prompt and a token, and what logits `reference` has for them."""

    def __init__(self, reference: PreTrainedModel) -> None:
        tokens = np.random.default_rng(2).integers(0, reference.config.vocab_size, 45).tolist()
        with torch.no_grad():
            self._expected: Array = reference(torch.tensor([tokens])).logits[0].numpy()
        self.steps: list[dict[int, list[int]]] = [{0: tokens[:-1]}, {0: tokens[-1:]}]

    def difference(self, logits: Array) -> float:
        """The largest difference of two logits, relative to the largest logit (or to 1)."""
        largest = np.abs(logits - self._expected).max()
        return float(largest / max(1.0, np.abs(self._expected).max()))


def difference(run: Run, reference: PreTrainedModel) -> float:
    """`OneRequest.difference` of the logits of `run`."""
    request, batches = OneRequest(reference), new_batches(run)
    steps = [run(batches.step(step, all_logits=True))["logits"] for step in request.steps]
    return request.difference(np.concatenate(steps))
