"""Computes smollm2_reference.json with `transformers`, in some minutes."""

from __future__ import annotations

import sys

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from tests.parity.perplexity import loss, of_reference
from tests.parity.real_models import gguf_reference
from tests.parity.smollm2 import (
    NEAR_TIE,
    NUM_TOKENS,
    Inputs,
    Reference,
    dump,
    make_inputs,
    open_gguf,
)


@torch.inference_mode()
def _choices(model: PreTrainedModel, prompt: list[int]) -> list[list[int]]:
    """For each step, the best token and those that nearly tie with it, best first."""
    cache = DynamicCache(config=model.config)
    ids, result = torch.tensor([prompt]), list[list[int]]()
    for _ in range(NUM_TOKENS):
        outputs = model(ids, past_key_values=cache, logits_to_keep=1)
        logits = outputs.logits[0, 0].numpy()
        near = np.flatnonzero(logits >= logits.max() - NEAR_TIE)
        result.append(near[np.argsort(-logits[near])].tolist())
        ids = torch.tensor([result[-1][:1]])
    return result


def _compute(model: PreTrainedModel, inputs: Inputs) -> Reference:
    logits_of = of_reference(model)
    return Reference(
        [_choices(model, prompt) for prompt in inputs.prompts],
        [loss(logits_of, window) for window in inputs.windows],
    )


def compute(inputs: Inputs) -> dict[str, Reference]:
    """The results for both forms of the weights: dequantized, and those rounded to bf16."""
    model = gguf_reference(open_gguf().path)
    references = {"gguf": _compute(model, inputs)}
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    references["bf16"] = _compute(model, inputs)
    return references


if __name__ == "__main__":
    made = make_inputs(open_gguf())
    sys.stdout.write(dump(made, compute(made)))
