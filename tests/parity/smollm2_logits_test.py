"""Logits of SmolLM2's GGUF, as it is, equal those of `transformers` on the dequantized weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.corpus import corpus_tokens
from tests.parity.executors import make_executor, new_batches
from tests.parity.model_path import model_path
from tests.parity.real_models import gguf_reference

# f32 on both sides. A row of 576 or 1,536 products summed in another order is off by some 1e-6 of
# its size, and 30 layers with activations of up to 10^3 carry that on: measured up to 7e-4 on
# logits of up to 33. Three times that; a block format read wrongly moves logits by more than 1.
TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def source() -> ModelSource:
    return ModelSource.open(model_path("PAGEMILL_TEST_SMOLLM2_GGUF"))


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    return gguf_reference(model_path("PAGEMILL_TEST_SMOLLM2_GGUF"))


@pytest.mark.parametrize("kind", ["torch", "native"])
def test_prompt_chunks_and_decode(
    source: ModelSource, reference: PreTrainedModel, kind: str
) -> None:
    run = make_executor(kind, source)
    batches = new_batches(run)
    tokens = corpus_tokens(source)
    texts = [tokens[1000:1301], tokens[5000:5090]]
    # A chunk of the first beside all of the second; then the rest; then both token by token.
    steps = [(200, 88), (99, 0), (1, 1), (1, 1)]
    done, rows = [0, 0], [list[np.ndarray](), list[np.ndarray]()]
    for counts in steps:
        step = {r: texts[r][done[r] : done[r] + count] for r, count in enumerate(counts) if count}
        logits = run(batches.step(step, all_logits=True))["logits"]
        at = 0
        for request, new in step.items():
            rows[request].append(logits[at : at + len(new)])
            at += len(new)
            done[request] += len(new)
    for text, parts in zip(texts, rows, strict=True):
        with torch.inference_mode():
            expected = reference(torch.tensor([text])).logits[0].numpy()
        actual = np.concatenate(parts)
        assert actual.shape == expected.shape
        assert float(np.abs(actual - expected).max()) <= TOLERANCE
