"""How well an executor or a reference predicts a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from pagemill.runner.simple_batch import SimpleBatch

from tests.parity.executors import Run

if TYPE_CHECKING:  # its import takes seconds
    from transformers import PreTrainedModel

Logits = npt.NDArray[np.float32]


def loss(logits_of: Callable[[list[int]], Logits], text: list[int]) -> float:
    """Mean of -log p(next token | text so far); `logits_of` returns [tokens, vocab]."""
    logits = torch.from_numpy(logits_of(text)[:-1])
    chosen = logits[torch.arange(len(text) - 1), torch.tensor(text[1:])]
    return float((logits.logsumexp(-1).double() - chosen).mean())


def of_executor(run: Run, batches: SimpleBatch) -> Callable[[list[int]], Logits]:
    """Logits of a whole text in one step."""

    def logits_of(text: list[int]) -> Logits:
        logits = run(batches.step({0: text}, all_logits=True))["logits"]
        batches.free(0)
        return logits

    return logits_of


def of_reference(reference: PreTrainedModel) -> Callable[[list[int]], Logits]:
    """Logits of a whole text."""

    def logits_of(text: list[int]) -> Logits:
        with torch.inference_mode():
            return reference(torch.tensor([text])).logits[0].numpy()

    return logits_of
