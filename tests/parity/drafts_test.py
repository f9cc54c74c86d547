"""Tiny models of each family: tokens with draft tokens are those without."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill import _native
from pagemill.config import EngineConfig, build
from pagemill.engine.loading import load

from tests.parity.executors import require_native
from tests.parity.tiny_models import DECODERS, make

SHARED = [7 * i % 190 + 2 for i in range(40)]
PROMPTS = [[5, 9, 100, 7, 3, 120] * 4, [77], [*SHARED, 3], [*SHARED, 11, 12], [*SHARED, 5, 9, 100]]
TOKENS = 60
DRAFTS = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 1}


def tokens_of(directory: Path, **options: Any) -> tuple[list[list[int]], int]:
    """Of each prompt, greedy and sampled; and how many of them were accepted drafts."""
    config = {
        "model": str(directory),
        "max_model_len": 128,
        "kv_cache_memory_bytes": "1MiB",
        "max_num_seqs": 4,
        **options,
    }
    engine = load(build(EngineConfig, config)).core.seam.engine
    try:
        unfinished = set[int]()
        for temperature in (0.0, 0.5):
            for prompt in PROMPTS:
                sampling = _native.SamplingParams(
                    temperature=temperature, seed=3, max_tokens=TOKENS, ignore_eos=True
                )
                engine.submit(len(unfinished), np.array(prompt, np.int32), sampling)
                unfinished.add(len(unfinished))
        tokens: list[list[int]] = [[] for _ in unfinished]
        deadline = time.monotonic() + 60
        while unfinished:
            assert time.monotonic() < deadline
            for output in engine.wait(1.0):
                assert output.error_message is None, output.error_message
                tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    unfinished.discard(output.request_id)
        return tokens, engine.stats().accepted_draft_tokens
    finally:
        engine.shutdown()


WITH_STATES = ("granite_experts", "granite_hybrid", "mamba2")


@pytest.mark.parametrize("family", [name for name in DECODERS if name not in WITH_STATES])
def test_tokens_are_those_without_drafts(family: str, tmp_path: Path) -> None:
    require_native()
    make(family, tmp_path)
    expected, _ = tokens_of(tmp_path)
    tokens, accepted = tokens_of(tmp_path, speculative_config=DRAFTS)
    assert tokens == expected
    assert accepted > 0


@pytest.mark.parametrize("family", WITH_STATES)
def test_states_take_no_tokens_back(family: str, tmp_path: Path) -> None:
    require_native()
    make(family, tmp_path)
    with pytest.raises(_native.StatusError, match="recurrent states"):
        tokens_of(tmp_path, speculative_config=DRAFTS)
