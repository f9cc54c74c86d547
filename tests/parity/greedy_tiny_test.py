"""Greedy tokens of tiny random models equal those of `transformers` on 50 prompts of 8 to 2,000."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pagemill.weights.source import ModelSource

from tests.parity.corpus import prompts
from tests.parity.executors import make_executor, new_batches
from tests.parity.greedy import generate, wrong_tokens
from tests.parity.tiny_models import make

# Twice the tolerance of decoder_parity_test.py for logits of about 5: either of two logits may be
# off by that much.
NEAR_TIE = 1e-3

NUM_TOKENS = 16
NUM_BLOCKS = 1400  # 50 prompts of 18,000 tokens in all, and what is generated


@pytest.mark.parametrize("kind", ["torch", "native"])
@pytest.mark.parametrize("family", ["gemma3", "llama", "qwen2"])
def test_tokens(family: str, kind: str, tmp_path: Path) -> None:
    reference = make(family, tmp_path)
    run = make_executor(kind, ModelSource.open(tmp_path), num_blocks=NUM_BLOCKS)
    vocab = reference.config.vocab_size
    tokens = np.random.default_rng(8).integers(0, vocab, 20_000).tolist()
    texts = prompts(tokens, 50, 8, 2000)
    outputs = generate(run, new_batches(NUM_BLOCKS), texts, NUM_TOKENS)
    # A model that always says the same would prove little.
    assert len({token for output in outputs for token in output}) > 50
    wrong = [
        line
        for text, output in zip(texts, outputs, strict=True)
        for line in wrong_tokens(reference, text, output, NEAR_TIE)
    ]
    assert not wrong, "\n".join(wrong)
