"""Decoders of text whose prompts see all of themselves equal `transformers`, in the step of a
prompt and behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.runner.build import BuildOptions, build
from pagemill.runner.simple_batch import SimpleBatch
from pagemill.weights.source import ModelSource

from tests.families.families import make
from tests.parity.executors import EXECUTORS, NUM_BLOCKS, make_executor

TOLERANCE = 1e-4  # as in families_test.py
PROMPT = 21  # tokens


@pytest.mark.parametrize("kind", EXECUTORS)
def test_hrm_text(kind: str, tmp_path: Path) -> None:
    reference = make("hrm_text", tmp_path, changes={"prefix_lm": True})
    source = ModelSource.open(tmp_path)
    assert not build(source, BuildOptions()).chunked_prefill
    ids = np.random.default_rng(1).integers(3, 257, PROMPT + 3).tolist()
    of_prompt = torch.tensor([[1] * PROMPT + [0] * 3])
    with torch.no_grad():
        expected = reference(torch.tensor([ids]), token_type_ids=of_prompt).logits[0].numpy()
        causal = reference(torch.tensor([ids])).logits[0].numpy()

    run = make_executor(kind, source)
    batches = SimpleBatch(NUM_BLOCKS, run.table_block_sizes, whole_prompts=True)
    steps = [ids[:PROMPT], *([token] for token in ids[PROMPT:])]
    logits = np.concatenate(
        [run(batches.step({0: tokens}, all_logits=True))["logits"] for tokens in steps]
    )
    bound = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    assert float(np.abs(logits - expected).max()) <= bound
    assert float(np.abs(logits - causal).max()) > 10 * bound
