"""Models whose layers are divided into stages, each a process: the tokens of one process, whatever
the stages do at the same time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.model_plan import plan_model
from pagemill.engine.outputs import EngineError
from pagemill.models.base import ModelConfigError
from pagemill.ops.program_text import from_text
from pagemill.runner.build import BuildOptions
from pagemill.runner.build import build as build_model
from pagemill.runner.stages import Stage, part_of
from pagemill.weights.source import ModelSource

from tests.families import families
from tests.parity.executors import require_native
from tests.parity.tiny_models import make, tiny_llama

# More requests than a stage takes, of several lengths: prompts in one step and in several.
PROMPTS = [[5, 9, 100, 7, 3, 120, 64, 31, 8], [77], list(range(2, 60)), [3, 4], [8] * 17]


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    reason: str | None = None
    error: str | None = None
    cached: int = 0


def config(directory: Path, **options: Any) -> EngineConfig:
    return build(
        EngineConfig,
        {
            "model": str(directory),
            "device": "cpu",
            "threads": 1,
            "max_model_len": 256,
            "kv_cache_memory_bytes": "16MiB",
            "kv_cache_dtype": "f32",
            "activation_dtype": "f32",
            "pack_cache": False,
            **options,
        },
    )


@contextlib.contextmanager
def engine(directory: Path, stages: int, **options: Any) -> Iterator[LoadedModel]:
    require_native()
    loaded = load(config(directory, pipeline_parallel_size=stages, **options))
    try:
        yield loaded
    finally:
        loaded.core.bindings.engine.shutdown()
        loaded.core.close_ranks()


def submit(
    loaded: LoadedModel,
    request: int,
    prompt: list[int],
    *,
    matcher: Any = None,
    **sampling: Any,
) -> None:
    params = _native.SamplingParams(
        **({"temperature": 0.0, "max_tokens": 12, "ignore_eos": True} | sampling)
    )
    fields = {} if matcher is None else {"new_token_matcher": matcher}
    loaded.core.engine.submit(request, np.array(prompt, np.int32), params, **fields)


def wait(loaded: LoadedModel, answers: dict[int, Answer]) -> None:
    """Until all of `answers` have ended."""
    deadline = time.monotonic() + 60
    while any(answer.reason is None for answer in answers.values()):
        assert time.monotonic() < deadline
        for output in loaded.core.bindings.engine.wait(1.0):
            answer = answers[output.request_id]
            answer.tokens += output.new_token_ids
            answer.logprobs += [value.logprob for value in output.logprobs or ()]
            answer.reason = output.finish_reason
            answer.error = output.error_message
            answer.cached = max(answer.cached, output.num_cached_tokens)


def generate(loaded: LoadedModel, prompts: list[list[int]], **sampling: Any) -> list[Answer]:
    """What requests get that are submitted together."""
    answers = {request: Answer() for request in range(len(prompts))}
    loaded.core.bindings.engine.pause("keep")
    for request, prompt in enumerate(prompts):
        submit(loaded, request, prompt, **sampling)
    loaded.core.bindings.engine.resume()
    wait(loaded, answers)
    assert not [answer.error for answer in answers.values() if answer.error]
    return list(answers.values())


def check(
    directory: Path, stages: int, prompts: list[list[int]] = PROMPTS, **options: Any
) -> list[Answer]:
    """Greedy and drawn tokens are those of one process; a stage computes what that would, so that
    log probabilities differ by fusions across the cut alone."""
    results: list[list[Answer]] = []
    for count in (1, stages):
        with engine(directory, count, **options) as loaded:
            greedy = generate(loaded, prompts, logprobs=1)
            by_maxima = generate(loaded, prompts)
            drawn = generate(loaded, prompts, temperature=1.5, seed=7)
        assert [a.tokens for a in by_maxima] == [a.tokens for a in greedy]
        results.append([*greedy, *drawn])
    for mine, theirs in zip(*results, strict=True):
        assert mine.tokens == theirs.tokens
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, rtol=1e-4, atol=1e-5)
    return results[1]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("llama")
    families.make("llama", path)
    return path


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_say_what_one_process_says(llama: Path, stages: int) -> None:
    check(llama, stages)


def test_stages_whose_layers_are_divided_too(llama: Path) -> None:
    with engine(llama, 1) as loaded:
        expected = generate(loaded, PROMPTS)
    with engine(llama, 2, tensor_parallel_size=2) as loaded:
        assert loaded.core.workers is not None and len(loaded.core.workers.pids) == 3
        got = generate(loaded, PROMPTS)
    assert [answer.tokens for answer in got] == [answer.tokens for answer in expected]


def test_embeddings_may_be_the_first_stages_alone(tmp_path: Path) -> None:
    """Those of the other tests are shared by the head, and on both."""
    tiny_llama(tie_word_embeddings=False).save_pretrained(tmp_path)
    check(tmp_path, 2)


def test_prompts_in_parts_pass_through_several_stages_at_a_time(llama: Path) -> None:
    check(llama, 3, [list(range(2, 130)), [5, 9], list(range(3, 90))], max_num_batched_tokens=16)


# Groups that differ between stages: windows beside full attention, states beside attention with
# other block sizes, values of the first layer that later stages read, layers without places.
@pytest.mark.parametrize("family", ["gemma3", "gemma4", "granite_hybrid_experts", "mamba"])
def test_stages_with_other_caches_than_the_first(family: str, tmp_path: Path) -> None:
    families.make(family, tmp_path)
    check(tmp_path, 2)


def test_prompts_are_pooled_by_the_last_stage(tmp_path: Path) -> None:
    """Of a model without a KV cache, whose prompts run in one step."""
    make("bert", tmp_path)
    results: list[dict[int, Any]] = []
    for stages in (1, 2):
        pooled: dict[int, Any] = {}
        with engine(tmp_path, stages, max_model_len=64) as loaded:
            for request, prompt in enumerate(PROMPTS):
                loaded.core.engine.submit(request, np.array(prompt, np.int32), None)
            deadline = time.monotonic() + 60
            while len(pooled) < len(PROMPTS):
                assert time.monotonic() < deadline
                for output in loaded.core.engine.wait(1.0):
                    assert output.error_message is None, output.error_message
                    pooled[output.request_id] = output.pooled
        results.append(pooled)
    for request, expected in results[0].items():
        np.testing.assert_allclose(results[1][request], expected, rtol=1e-5, atol=1e-6)


def test_a_prefix_is_cached_on_all_stages(llama: Path) -> None:
    prompt = list(range(2, 82))
    with engine(llama, 1) as loaded:
        expected = generate(loaded, [[*prompt, 7]])[0].tokens
    with engine(llama, 2) as loaded:
        generate(loaded, [prompt])
        answer = generate(loaded, [[*prompt, 7]])[0]
    assert answer.cached == 80
    assert answer.tokens == expected


def test_preempted_requests_go_on(llama: Path) -> None:
    """Four requests, and blocks for two of them at their end."""
    prompts = [[request + 2] * 20 for request in range(4)]
    with engine(llama, 1) as loaded:
        expected = generate(loaded, prompts, max_tokens=60)
        page = loaded.core.budget.kv_bytes // loaded.core.budget.num_blocks
    with engine(llama, 2, kv_cache_memory_bytes=str(13 * page), max_model_len=128) as loaded:
        got = generate(loaded, prompts, max_tokens=60)
        assert loaded.core.engine.stats().num_preemptions > 0
    assert [answer.tokens for answer in got] == [answer.tokens for answer in expected]


def test_an_aborted_request_leaves_the_others(llama: Path) -> None:
    with engine(llama, 1) as loaded:
        expected = generate(loaded, PROMPTS[:3], max_tokens=100)
    with engine(llama, 3) as loaded:
        answers = {request: Answer() for request in range(4)}
        for request, prompt in enumerate([*PROMPTS[:3], [9, 9]]):
            submit(loaded, request, prompt, max_tokens=100)
        loaded.core.bindings.engine.abort(3)
        wait(loaded, answers)
        assert answers[3].reason == "abort"
    assert [answers[r].tokens for r in range(3)] == [answer.tokens for answer in expected]


def test_requests_are_divided_among_the_stages(llama: Path) -> None:
    """Eight requests, four in each step."""
    with engine(llama, 1) as loaded:
        before = loaded.core.engine.stats().num_steps
        generate(loaded, [[5, 6]] * 8, max_tokens=20)
        whole = loaded.core.engine.stats().num_steps - before
    with engine(llama, 2) as loaded:
        before = loaded.core.engine.stats().num_steps
        generate(loaded, [[5, 6]] * 8, max_tokens=20)
        divided = loaded.core.engine.stats().num_steps - before
    assert (whole, divided) == (20, 40)


class Only:
    """A matcher that allows one token, step after step, and may name it as forced; it is its own
    factory."""

    def __init__(self, token: int, *, forces: bool) -> None:
        self._token = token
        self._forces = forces

    def __call__(self) -> Only:
        return self

    def fill_mask(self, mask: Any) -> None:
        mask[:] = 0
        mask[self._token // 32] = 1 << self._token % 32

    def accept(self, token_id: int) -> bool:
        return token_id == self._token

    def rollback(self, num_tokens: int) -> None:
        del num_tokens

    def forced(self, most: int) -> list[int]:
        return [self._token] * most if self._forces else []


@pytest.mark.parametrize("forces", [False, True])
def test_requests_in_different_stages_have_their_own_masks(llama: Path, *, forces: bool) -> None:
    with engine(llama, 2) as loaded:
        answers = {request: Answer() for request in range(5)}
        for request in range(4):
            submit(loaded, request, [5, 6], matcher=Only(11 + request, forces=forces))
        submit(loaded, 4, [5, 6])
        wait(loaded, answers)
        free = generate(loaded, [[5, 6]])[0].tokens
    assert [answers[request].error for request in range(5)] == [None] * 5
    assert [answers[request].tokens for request in range(4)] == [[11 + r] * 12 for r in range(4)]
    assert answers[4].tokens == free


def test_a_stage_that_dies_fails_requests_with_its_rank(llama: Path) -> None:
    with engine(llama, 3) as loaded:
        generate(loaded, PROMPTS)
        assert loaded.core.workers is not None
        pid = loaded.core.workers.pids[1]
        os.kill(pid, signal.SIGKILL)
        for worker in loaded.core.workers._processes:
            worker.wait(60)  # rank 1 sees that it is gone, and leaves
        answers = {0: Answer()}
        submit(loaded, 0, PROMPTS[0])
        wait(loaded, answers)
        assert f"rank 2 of 3 (process {pid}) has died" in str(answers[0].error)
        with pytest.raises(EngineError, match=rf"rank 2 of 3 \(process {pid}\) was killed"):
            loaded.core.check()


def test_the_memory_of_all_stages_is_planned(llama: Path) -> None:
    whole = plan_model(config(llama))
    divided = plan_model(config(llama, pipeline_parallel_size=2))
    # The embeddings, which the head shares, and the angles of a head's 20 elements are on both.
    assert divided.weights == whole.weights + 4 * (257 * 96 + 10)
    assert divided.kv_pages.page_bytes == whole.kv_pages.page_bytes
    assert divided.activations > whole.activations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "torch"}, "--pipeline-parallel-size 2 needs --executor native"),
        ({"kv_offloading_bytes": "64MiB"}, "--kv-shared-memory-bytes cannot be used with"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
            "--speculative-config cannot be used with --pipeline-parallel-size 2",
        ),
        ({"enable_lora": True}, "--enable-lora and --lora-modules cannot be used with"),
        ({"enable_prompt_embeds": True}, "stages take no media and no embeddings"),
        ({"tensor_parallel_size": 64}, "is 128 ranks, more than 64"),
    ],
)
def test_what_stages_cannot_do_is_refused(
    llama: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, ModelConfigError), match=message):
        load(config(llama, pipeline_parallel_size=2, **options))


def test_more_stages_than_places_to_divide_are_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="the model's 4 layers are not divided into so many"):
        load(config(llama, pipeline_parallel_size=5))
    families.make("gemma4", tmp_path)  # layers 2 to 5 share caches
    with pytest.raises(ModelConfigError, match="the model's 6 layers are not divided"):
        load(config(tmp_path, pipeline_parallel_size=4))


def layers(directory: Path, stages: int) -> list[int]:
    """The number of layers of each stage."""
    text = build_model(ModelSource.open(directory), BuildOptions(rewrite=False)).program_text
    parts = [part_of(from_text(text), Stage(index, stages)).program for index in range(stages)]
    return [sum(value.name.startswith("layer.") for value in part.values) for part in parts]


def test_layers_are_divided_evenly_where_they_can_be(llama: Path, tmp_path: Path) -> None:
    assert layers(llama, 2) == [2, 2]
    assert layers(llama, 3) == [2, 1, 1]
    families.make("gemma4", tmp_path)
    assert layers(tmp_path, 2) == [2, 4]
