"""The engine with a tiny model, for tests of the KV cache and of drafts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.loading import load
from pagemill.engine.model_weights import ModelWeights
from pagemill.inputs.task import Task
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

GENERATED, MODEL_LEN = 24, 360  # tokens, by default
_SHARED = [7 * i % 190 + 2 for i in range(40)]
DRAFTED_PROMPTS = [
    [5, 9, 100, 7, 3, 120] * 4,
    [77],
    [*_SHARED, 3],
    [*_SHARED, 11, 12],
    [*_SHARED, 5, 9, 100],
]
DRAFTED_TOKENS = 60

_IDS = count(1)


@dataclass(slots=True)
class Answer:
    """Greedy tokens after a prompt, of which `cached` tokens were found in the prefix cache."""

    tokens: list[int] = field(default_factory=list[int])
    cached: int = -1


@contextmanager
def engine(
    path: Path, *, max_model_len: int = MODEL_LEN, task: Task | None = None, **options: Any
) -> Iterator[EngineCore]:
    """An engine of the model in f32, in steps of at most 32 tokens by default. Vectors for `task`
    keep their length."""
    config = build_config(
        EngineConfig,
        {
            "model": str(path),
            "max_num_batched_tokens": 32,
            "max_num_seqs": 4,
            "max_model_len": max_model_len,
            "kv_cache_dtype": "f32",
            "activation_dtype": "f32",
            "pack_cache": False,
            **options,
        },
    )
    source = ModelSource.open(path)
    wanted = BuildOptions(
        max_model_len=max_model_len,
        task=task,
        normalize=False,
        adapters=config.lora.enabled,
        implementation=config.model.model_impl,
    )
    ranks = config.executor.tensor_parallel_size
    whole_experts = config.executor.enable_expert_parallel
    shards = (Shard(rank, ranks, whole_experts=whole_experts) for rank in range(ranks))
    built, *others = (build(source, replace(wanted, shard=shard)) for shard in shards)
    core = EngineCore.create(built, config, "float32", others, source=source)
    try:
        yield core
    finally:
        core.bindings.engine.shutdown()
        core.close_ranks()


def update_weights(core: EngineCore, loaded: Path, path: Path) -> None:
    """Gives an engine of the model in `loaded` the weights of the one in `path`."""
    source = ModelSource.open(loaded)
    ModelWeights(core.engine, core.built, source, source).update_weights(str(path))


def generate(
    core: EngineCore,
    prompts: Sequence[list[int]],
    num_tokens: int,
    adapters: Sequence[int] | None = None,
) -> list[Answer]:
    """The engine's answers to prompts that are submitted together, each with the adapter of this id
    (0: none)."""
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    native = core.bindings.engine
    answers = {next(_IDS): Answer() for _ in prompts}
    native.pause("keep")  # the steps do not depend on how fast requests are submitted
    for request_id, prompt, adapter in zip(
        answers, prompts, adapters or [0] * len(prompts), strict=True
    ):
        native.submit(request_id, np.array(prompt, np.int32), sampling, adapter=adapter)
    native.resume()
    while any(answer.cached < 0 for answer in answers.values()):
        for output in native.wait(30):
            answer = answers[output.request_id]
            answer.tokens += output.new_token_ids
            if output.finish_reason is not None:
                assert output.finish_reason == "length", output.error_message
                answer.cached = output.num_cached_tokens
    return list(answers.values())


def pool(
    core: EngineCore, prompts: Sequence[list[int]], second_texts: Mapping[int, int]
) -> npt.NDArray[np.float32]:
    """The numbers of all prompts, which are submitted together; `second_texts` has where those of
    pairs begin, by the index of the prompt."""
    native = core.bindings.engine
    native.pause("keep")
    for index, prompt in enumerate(prompts):
        start = second_texts.get(index, 0)
        native.submit(index, np.array(prompt, np.int32), None, second_text_start=start)
    native.resume()
    rows: dict[int, npt.NDArray[np.float32]] = {}
    while len(rows) < len(prompts):
        for output in native.wait(30):
            assert output.pooled is not None, output.error_message
            rows[output.request_id] = output.pooled
    return np.concatenate([rows[index] for index in range(len(prompts))])


def generate_one(
    core: EngineCore, prompt: list[int], num_tokens: int = GENERATED
) -> tuple[list[int], int]:
    """Greedy tokens, and how many tokens of the prompt were cached."""
    (answer,) = generate(core, [prompt], num_tokens)
    return answer.tokens, answer.cached


def tokens_of(
    directory: Path,
    temperatures: tuple[float, ...] = (0.0, 0.5),
    prompts: Sequence[list[int]] = DRAFTED_PROMPTS,
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
    core = load(build_config(EngineConfig, config)).core
    engine = core.bindings.engine
    try:
        unfinished = set[int]()
        for temperature in temperatures:
            for prompt in prompts:
                sampling = _native.SamplingParams(
                    temperature=temperature, seed=3, max_tokens=DRAFTED_TOKENS, ignore_eos=True
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


@torch.inference_mode()
def greedy_choices(reference: PreTrainedModel, prompt: list[int], tokens: list[int]) -> list[int]:
    """The choices of `transformers` after the prompt and each of `tokens` but the last, without its
    caches, which are no independent reference. Equal to `tokens` if those are its own choices."""
    ids = torch.tensor([prompt + tokens[:-1]])
    logits = reference(ids, use_cache=False).logits[0, len(prompt) - 1 :]
    return logits.argmax(-1).tolist()


def random_prompt(seed: int, length: int, vocab_size: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, length).tolist()
