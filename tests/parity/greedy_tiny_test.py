"""Greedy tokens of tiny random models equal those of `transformers` on 50 prompts of 8 to 2,000."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.corpus import prompts
from tests.parity.executors import make_executor, new_batches
from tests.parity.greedy import generate, wrong_tokens
from tests.parity.tiny_models import make

# Twice the tolerance of tests/families/families_test.py for logits of about 5: either of two logits
# may be off by that much.
NEAR_TIE = 1e-3

NUM_TOKENS = 16
# 50 prompts of 18,000 tokens in all, and what is generated, in up to seven block tables.
NUM_BLOCKS = 7 * 1400


class Case:
    """A tiny model and its prompts; the reference judges a continuation of a prompt once."""

    def __init__(self, reference: PreTrainedModel, source: ModelSource) -> None:
        tokens = np.random.default_rng(8).integers(0, reference.config.vocab_size, 20_000).tolist()
        self.source = source
        self.prompts = prompts(tokens, 50, 8, 2000)
        self._reference = reference
        self._wrong: dict[tuple[int, ...], list[str]] = {}

    def wrong_tokens(self, prompt: list[int], output: list[int]) -> list[str]:
        key = (*prompt, -1, *output)
        if key not in self._wrong:
            self._wrong[key] = wrong_tokens(self._reference, prompt, output, NEAR_TIE)
        return self._wrong[key]


@pytest.fixture(scope="module", params=["gemma3", "llama", "qwen2", "qwen3_moe"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory: Path = tmp_path_factory.mktemp(request.param)
    reference = make(request.param, directory)
    return Case(reference, ModelSource.open(directory))


@pytest.mark.parametrize("kind", ["torch", "native"])
def test_tokens(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source, num_blocks=NUM_BLOCKS)
    outputs = generate(run, new_batches(run, NUM_BLOCKS), case.prompts, NUM_TOKENS)
    # A model that always generates the same tokens would prove little.
    assert len({token for output in outputs for token in output}) > 50
    wrong = [
        line
        for prompt, output in zip(case.prompts, outputs, strict=True)
        for line in case.wrong_tokens(prompt, output)
    ]
    assert not wrong, "\n".join(wrong)
