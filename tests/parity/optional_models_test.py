"""Logits and greedy tokens of larger real models: Qwen2.5-Coder 0.5B and 1.5B and Gemma-3-270M as
GGUF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.weights.source import ModelSource

from tests.parity.corpus import corpus_tokens
from tests.parity.executors import make_executor, new_batches
from tests.parity.greedy import generate, wrong_tokens
from tests.parity.model_path import model_path
from tests.parity.real_models import gguf_reference

# As in smollm2_logits_test.py, relative to the largest logit, whose size differs by model.
RELATIVE_TOLERANCE = 1e-4


@pytest.fixture(
    scope="module",
    params=[
        "PAGEMILL_TEST_QWEN2_5_CODER_GGUF",
        "PAGEMILL_TEST_QWEN2_5_CODER_1_5B_GGUF",
        "PAGEMILL_TEST_GEMMA3_270M_GGUF",
    ],
)
def path(request: pytest.FixtureRequest) -> Path:
    return model_path(request.param)


def test_logits_and_tokens(path: Path) -> None:
    source, reference = ModelSource.open(path), gguf_reference(path)
    tokens = corpus_tokens(source)
    # 700 tokens reach beyond Gemma's sliding window of 512.
    texts = [tokens[2000:2700], tokens[9000:9040]]
    run = make_executor("native", source)
    batches = new_batches(run)
    logits = run(batches.step(dict(enumerate(texts))))["logits"]
    bound = 0.0
    for row, text in zip(logits, texts, strict=True):
        with torch.inference_mode():
            expected = reference(torch.tensor([text]), logits_to_keep=1).logits[0, 0].numpy()
        bound = max(bound, RELATIVE_TOLERANCE * float(np.abs(expected).max()))
        assert float(np.abs(row - expected).max()) <= bound
    for output, text in zip(generate(run, new_batches(run), texts, 16), texts, strict=True):
        assert not wrong_tokens(reference, text, output, 2 * bound)
