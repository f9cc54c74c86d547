"""An engine of a tiny model, one request at a time, and the tokens that it should say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

GENERATED, MODEL_LEN = 24, 360


@contextmanager
def engine(path: Path, **options: Any) -> Iterator[EngineCore]:
    """An engine of the model in steps of at most 32 tokens."""
    config = build_config(
        EngineConfig,
        {
            "model": str(path),
            "max_num_batched_tokens": 32,
            "max_num_seqs": 4,
            "max_model_len": MODEL_LEN,
            "kv_cache_dtype": "f32",
            "activation_dtype": "f32",
            "pack_cache": False,
            **options,
        },
    )
    built = build(ModelSource.open(path), BuildOptions(max_model_len=MODEL_LEN))
    core = EngineCore.create(built, config, "float32")
    try:
        yield core
    finally:
        core.seam.engine.shutdown()


def generate(core: EngineCore, request_id: int, prompt: list[int]) -> tuple[list[int], int]:
    """GENERATED greedy tokens, and how many tokens of the prompt were cached."""
    sampling = core.seam.make_sampling(temperature=0.0, max_tokens=GENERATED, ignore_eos=True)
    native = core.seam.engine
    native.submit(request_id, np.array(prompt, np.int32), sampling)
    tokens: list[int] = []
    while True:
        for output in native.wait(30):
            tokens += output.new_token_ids
            if output.finish_reason is not None:
                assert output.finish_reason == "length", output.error_message
                return tokens, output.num_cached_tokens


@torch.inference_mode()
def greedy_after(reference: PreTrainedModel, prompt: list[int], tokens: list[int]) -> list[int]:
    """The best token after the prompt and after each of `tokens` but the last: `tokens` themselves
    if they are what the reference says. Without the cache of `transformers`, whose sliding layers
    are no reference of their own."""
    ids = torch.tensor([[*prompt, *tokens[:-1]]])
    logits = reference(ids, use_cache=False).logits[0, len(prompt) - 1 :]
    return logits.argmax(-1).tolist()
