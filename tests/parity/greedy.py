"""Greedy generation with an executor, and its comparison with a reference.

The reference runs once over each prompt and the tokens generated after it. Token i is right if it
is the reference's own choice after the tokens before it, so the comparison continues from the same
context whichever of two equal logits was chosen. This is equivalent to running both side by side
and continuing from a common token at each tie, in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from pagemill.runner.simple_batch import SimpleBatch

from tests.parity.executors import Run

if TYPE_CHECKING:  # its import takes seconds
    from transformers import PreTrainedModel

CHUNK = 512  # tokens of a prompt in one step


def generate(
    run: Run,
    batches: SimpleBatch,
    prompts: Sequence[list[int]],
    num_tokens: int,
    context: Sequence[list[int]] | None = None,
) -> list[list[int]]:
    """Greedy continuations of `prompts`, which are prefilled in chunks and decoded together.

    With `context`, the continuations by a reference, each token is chosen after the reference's
    tokens: both continue alike whichever of two equal logits was chosen.
    """
    outputs: list[list[int]] = []
    for request, prompt in enumerate(prompts):
        logits = None
        for start in range(0, len(prompt), CHUNK):
            logits = run(batches.step({request: prompt[start : start + CHUNK]}))["logits"]
        outputs.append([int(logits[0].argmax())])
    context = outputs if context is None else context
    for i in range(num_tokens - 1):
        step = {request: tokens[i : i + 1] for request, tokens in enumerate(context)}
        logits = run(batches.step(step))["logits"]
        for output, token in zip(outputs, logits.argmax(-1).tolist(), strict=True):
            output.append(token)
    for request in range(len(prompts)):
        batches.free(request)
    return outputs


@torch.inference_mode()
def wrong_tokens(
    reference: PreTrainedModel, prompt: list[int], output: list[int], near_tie: float
) -> list[str]:
    """The tokens of `output` that the reference would not have chosen, each as a line of text.

    A token whose logit is less than `near_tie` below the best counts as chosen.
    """
    ids = torch.tensor([prompt + output[:-1]])
    logits = reference(ids, logits_to_keep=len(output)).logits[0].numpy()
    best = logits.max(-1)
    deficit = best - logits[np.arange(len(output)), output]
    return [
        f"prompt of {len(prompt)}: token {i} is {output[i]}, {deficit[i]:.5f} below the best"
        for i in np.flatnonzero(deficit > near_tie)
    ]
