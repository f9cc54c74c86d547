"""Logits of each decoder family equal those of `transformers`: whole prompts, chunks, decode."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.executors import EXECUTORS, make_executor, new_batches
from tests.parity.tiny_models import DECODERS, make

# Both sides compute in f32 with logits of about 1 to 10. They add up rows of up to 136 products in
# different orders, which moves a logit by some 1e-6 per layer; 7 layers with norms stay below 2e-5.
# Five times that: a wrong window, scale or position moves logits by more than 1e-2.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    source: ModelSource
    reference: PreTrainedModel

    def logits(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            return self.reference(torch.tensor([token_ids])).logits[0].numpy()

    def prompt(self, length: int, seed: int) -> list[int]:
        vocab = self.reference.config.vocab_size
        return np.random.default_rng(seed).integers(0, vocab, length).tolist()


@pytest.fixture(scope="module", params=[(f, d) for f in DECODERS for d in ("f32", "bf16")], ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, dtype = request.param
    directory: Path = tmp_path_factory.mktemp(f"{family}-{dtype}")
    reference = make(family, directory, dtype)
    return Case(ModelSource.open(directory), reference)


def _close(actual: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> None:
    assert actual.shape == expected.shape and np.isfinite(actual).all()
    scale = max(1.0, float(np.abs(expected).max()))
    assert float(np.abs(actual - expected).max()) <= TOLERANCE * scale


@pytest.mark.parametrize("kind", EXECUTORS)
def test_prompts_of_many_lengths_in_one_batch(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source)
    batches = new_batches(run)
    prompts = {index: case.prompt(length, index) for index, length in enumerate((1, 16, 61, 2, 17))}
    outputs = run(batches.step(prompts, all_logits=True))
    assert set(outputs) == {"logits"}
    _close(outputs["logits"], np.concatenate([case.logits(prompt) for prompt in prompts.values()]))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_chunks_and_decode_mixed(case: Case, kind: str) -> None:
    """Requests that decode run together with one whose prompt comes in chunks, and one that joins
    late."""
    run = make_executor(kind, case.source)
    batches = new_batches(run)
    texts = [case.prompt(53, 10), case.prompt(40, 11), case.prompt(29, 12)]
    expected = [case.logits(text) for text in texts]
    done = [0, 0, 0]
    # Tokens that each request runs in each step.
    for counts in [(20, 7, 0), (1, 13, 0), (1, 1, 11), (1, 19, 1), (30, 0, 17)]:
        step = {
            request: texts[request][done[request] : done[request] + count]
            for request, count in enumerate(counts)
            if count
        }
        logits = run(batches.step(step))["logits"]
        for request, count in enumerate(counts):
            done[request] += count
        _close(logits, np.stack([expected[request][done[request] - 1] for request in step]))
    assert done == [len(text) for text in texts]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_blocks_that_were_used_before_hold_no_trace_of_it(case: Case, kind: str) -> None:
    run = make_executor(kind, case.source)
    batches = new_batches(run)
    for request in range(3):
        run(batches.step({request: case.prompt(50, 20 + request)}))
        batches.free(request)
    text = case.prompt(37, 30)
    run(batches.step({9: text[:-1]}))
    logits = run(batches.step({9: text[-1:]}))["logits"]
    _close(logits, case.logits(text)[-1:])
