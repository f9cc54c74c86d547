"""The same prompt gives the same tokens, regardless of other requests and settings (decision 0002).

On the real default model: alone, in a batch of 32, with the prefix cache cold and hot, with prompts
split into chunks of 64 tokens, with one thread and two, with a KV pool so small that requests are
preempted continually, and with draft tokens. Greedy and seeded sampling alike. Equality is exact.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from pagemill import _native
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.weights.source import ModelSource

MODEL = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
NUM_REQUESTS = 32
MAX_TOKENS = 24
BLOCK = 16
LOGITS_ROWS = 2 * NUM_REQUESTS

pytestmark = pytest.mark.skipif(
    not MODEL, reason="PAGEMILL_TEST_SMOLLM2_GGUF does not name the model file"
)


@dataclass(frozen=True)
class Setup:
    """The differences between the runs that must agree."""

    threads: int = 2
    max_num_tokens: int = 2048
    num_blocks: int = 1024
    prefix_caching: bool = False
    max_draft_tokens: int = 0
    max_step_us: int | None = None


@pytest.fixture(scope="module")
def built() -> BuiltModel:
    return build(ModelSource.open(Path(MODEL)), BuildOptions(max_model_len=1024))


@pytest.fixture(scope="module")
def prompts(built: BuiltModel) -> list[list[int]]:
    """32 prompts of 3 to 300 tokens; half share a prefix, so that a hot cache can hit."""
    rng = random.Random(7)
    shared = [rng.randrange(100, built.vocab_size) for _ in range(150)]
    result = []
    for i in range(NUM_REQUESTS):
        own = [rng.randrange(100, built.vocab_size) for _ in range(rng.randrange(3, 150))]
        result.append(shared + own if i % 2 else own)
    return result


def sampling(index: int) -> _native.SamplingParams:
    """Greedy for every other request, else sampled with penalties: sampler state matters too."""
    if index % 2 == 0:
        return _native.SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
    return _native.SamplingParams(
        temperature=0.8,
        top_p=0.9,
        top_k=40,
        seed=1000 + index,
        presence_penalty=0.3,
        repetition_penalty=1.1,
        max_tokens=MAX_TOKENS,
        ignore_eos=True,
    )


class Run:
    """An engine of one set-up."""

    def __init__(self, built: BuiltModel, setup: Setup) -> None:
        options = _native.ExecutorOptions(
            num_threads=setup.threads,
            max_num_tokens=setup.max_num_tokens,
            max_num_seqs=NUM_REQUESTS,
            max_num_logits_rows=LOGITS_ROWS,
            num_blocks=setup.num_blocks,
            block_size=BLOCK,
            kv_cache_dtype="bf16",
        )
        limits = _native.RunnerLimits(
            max_num_tokens=setup.max_num_tokens,
            max_num_seqs=NUM_REQUESTS,
            max_num_logits_rows=LOGITS_ROWS,
            max_model_len=built.max_model_len,
            vocab_size=built.vocab_size,
            num_blocks=setup.num_blocks,
            block_size=BLOCK,
            kv_groups=_native.kv_groups(built.program_text, options),
            max_draft_tokens=setup.max_draft_tokens,
        )
        ngrams = (1, 4) if setup.max_draft_tokens > 0 else None
        executor = _native.NativeExecutor(built.program_text, options)
        self.engine = _native.Engine(
            _native.ModelRunner(executor, limits, ngram_sizes=ngrams),
            _native.EngineOptions(
                enable_prefix_caching=setup.prefix_caching,
                max_step_us=setup.max_step_us,
                check_integrity=True,
            ),
        )
        self._next_id = 0

    def tokens(self, prompts: list[list[int]], indices: list[int]) -> list[list[int]]:
        """Runs the requests of `indices` together; their tokens, in that order."""
        ids = {}
        self.engine.pause("keep")  # the steps do not depend on how fast requests are submitted
        for index in indices:
            self._next_id += 1
            ids[self._next_id] = index
            self.engine.submit(self._next_id, prompts[index], sampling(index))
        self.engine.resume()
        tokens: dict[int, list[int]] = {index: [] for index in indices}
        unfinished = set(ids)
        while unfinished:
            for output in self.engine.wait(60.0):
                tokens[ids[output.request_id]] += output.new_token_ids
                if output.finish_reason is not None:
                    assert output.finish_reason == "length", output.error_message
                    unfinished.discard(output.request_id)
        return [tokens[index] for index in indices]


ALL = list(range(NUM_REQUESTS))


@pytest.fixture(scope="module")
def expected(built: BuiltModel, prompts: list[list[int]]) -> list[list[int]]:
    """Each request alone in the engine, nothing cached, its prompt in one step."""
    run = Run(built, Setup())
    tokens = [run.tokens(prompts, [index])[0] for index in ALL]
    assert all(len(t) == MAX_TOKENS for t in tokens)
    return tokens


def test_batch_of_32(
    built: BuiltModel, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    assert Run(built, Setup()).tokens(prompts, ALL) == expected


def test_one_thread(built: BuiltModel, prompts: list[list[int]], expected: list[list[int]]) -> None:
    assert Run(built, Setup(threads=1)).tokens(prompts, ALL) == expected


def test_prefix_cache_cold_and_hot(
    built: BuiltModel, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    run = Run(built, Setup(prefix_caching=True))
    assert run.tokens(prompts, ALL) == expected
    hits_before = run.engine.stats().prefix_cache_hit_tokens
    assert run.tokens(prompts, ALL) == expected
    assert run.engine.stats().prefix_cache_hit_tokens > hits_before + 1000


def test_chunked_prefill_of_64(
    built: BuiltModel, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    assert Run(built, Setup(max_num_tokens=64)).tokens(prompts, ALL) == expected


@pytest.mark.parametrize(("prefix_caching", "max_draft_tokens"), [(False, 0), (True, 0), (True, 5)])
def test_forced_preemption(
    built: BuiltModel,
    prompts: list[list[int]],
    expected: list[list[int]],
    prefix_caching: bool,
    max_draft_tokens: int,
) -> None:
    longest = max(len(p) for p in prompts) + MAX_TOKENS
    setup = Setup(
        num_blocks=2 + 2 * -(-longest // BLOCK),  # room for about two of the longest requests
        prefix_caching=prefix_caching,
        max_num_tokens=256,
        max_draft_tokens=max_draft_tokens,
        max_step_us=0,  # how often requests are preempted does not depend on the machine's speed
    )
    run = Run(built, setup)
    assert run.tokens(prompts, ALL) == expected
    stats = run.engine.stats()
    assert stats.num_preemptions > 0
    assert stats.kv_blocks_used == 0
    assert (stats.accepted_draft_tokens > 0) == (max_draft_tokens > 0)


def test_drafts(built: BuiltModel, prompts: list[list[int]], expected: list[list[int]]) -> None:
    run = Run(built, Setup(max_draft_tokens=8))
    # A single request has the most drafts; in a batch they compete with those of others.
    for indices in ([index] for index in ALL[:4]):
        assert run.tokens(prompts, indices) == [expected[index] for index in indices]
    assert run.tokens(prompts, ALL) == expected
    stats = run.engine.stats()
    assert 0 < stats.accepted_draft_tokens < stats.draft_tokens
