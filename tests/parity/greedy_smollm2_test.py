"""Greedy tokens of SmolLM2, as GGUF and as bf16 safetensors, equal those of `transformers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.corpus import corpus_tokens, prompts
from tests.parity.executors import make_executor, new_batches
from tests.parity.greedy import generate, wrong_tokens
from tests.parity.real_models import gguf_reference, model_path, save_bf16

# Two logits, each within the tolerance of smollm2_logits_test.py.
NEAR_TIE = 4e-3

NUM_PROMPTS, SHORTEST, LONGEST = 50, 8, 2000
NUM_TOKENS = 16
NUM_BLOCKS = 1400

Case = tuple[ModelSource, PreTrainedModel]


@pytest.fixture(scope="module", params=["gguf", "bf16"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    gguf = model_path("PAGEMILL_TEST_SMOLLM2_GGUF")
    reference = gguf_reference(gguf)
    if request.param == "gguf":
        yield ModelSource.open(gguf), reference
        return
    directory: Path = tmp_path_factory.mktemp("bf16")
    reference = save_bf16(reference, directory)
    yield ModelSource.open(directory), reference


def test_tokens(case: Case) -> None:
    source, reference = case
    tokens = corpus_tokens(ModelSource.open(model_path("PAGEMILL_TEST_SMOLLM2_GGUF")))
    texts = prompts(tokens, NUM_PROMPTS, SHORTEST, LONGEST)
    run = make_executor("native", source, num_blocks=NUM_BLOCKS)
    outputs = generate(run, new_batches(NUM_BLOCKS), texts, NUM_TOKENS)
    wrong = [
        line
        for text, output in zip(texts, outputs, strict=True)
        for line in wrong_tokens(reference, text, output, NEAR_TIE)
    ]
    assert not wrong, "\n".join(wrong)
