"""Perplexity over windows of tokens, by an executor or by a reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from pagemill.runner.simple_batch import SimpleBatch
from transformers import PreTrainedModel

from tests.parity.executors import Run

Logits = npt.NDArray[np.float32]


def windows(tokens: Sequence[int], count: int, length: int) -> list[list[int]]:
    """`count` windows spread evenly over `tokens`."""
    stride = (len(tokens) - length) // max(count - 1, 1)
    return [list(tokens[i * stride : i * stride + length]) for i in range(count)]


def perplexity(logits_of: Callable[[list[int]], Logits], texts: Sequence[list[int]]) -> float:
    """exp of the mean of -log p(next token | text so far); `logits_of` gives [tokens, vocab]."""
    total, count = 0.0, 0
    for text in texts:
        logits = torch.from_numpy(logits_of(text)[:-1]).double()
        chosen = logits.log_softmax(-1)[torch.arange(len(text) - 1), torch.tensor(text[1:])]
        total -= float(chosen.sum())
        count += len(text) - 1
    return math.exp(total / count)


def of_executor(run: Run, batches: SimpleBatch) -> Callable[[list[int]], Logits]:
    """Logits of a whole text in one step."""

    def logits_of(text: list[int]) -> Logits:
        logits, _ = run(batches.step({0: text}, all_logits=True))
        batches.free(0)
        assert logits is not None
        return logits

    return logits_of


def of_reference(reference: PreTrainedModel) -> Callable[[list[int]], Logits]:
    """Logits of a whole text."""

    def logits_of(text: list[int]) -> Logits:
        with torch.inference_mode():
            return reference(torch.tensor([text])).logits[0].numpy()

    return logits_of
