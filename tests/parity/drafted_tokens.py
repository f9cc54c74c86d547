"""What the engine generates for a few prompts, and what it counted of drafts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pagemill import _native
from pagemill.config import EngineConfig, build
from pagemill.engine.loading import load
from pagemill.observe.snapshot import EngineSnapshot

SHARED = [7 * i % 190 + 2 for i in range(40)]
PROMPTS = [[5, 9, 100, 7, 3, 120] * 4, [77], [*SHARED, 3], [*SHARED, 11, 12], [*SHARED, 5, 9, 100]]
TOKENS = 60


def tokens_of(
    directory: Path,
    temperatures: tuple[float, ...] = (0.0, 0.5),
    prompts: Sequence[list[int]] = PROMPTS,
    **options: Any,
) -> tuple[list[list[int]], EngineSnapshot]:
    """Of each prompt at each temperature; and what the engine counted."""
    config = {
        "model": str(directory),
        "max_model_len": 128,
        "kv_cache_memory_bytes": "1MiB",
        "max_num_seqs": 4,
        **options,
    }
    core = load(build(EngineConfig, config)).core
    engine = core.bindings.engine
    try:
        unfinished = set[int]()
        for temperature in temperatures:
            for prompt in prompts:
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
        return tokens, engine.stats()
    finally:
        engine.shutdown()
        core.close_ranks()
