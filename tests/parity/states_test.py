"""State-space layers through the engine: regardless of preemption and caching, a request's tokens
are those of one uninterrupted run, which are those of `transformers`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.parity import small_engine
from tests.parity.engine_model import GENERATED, MODEL_LEN, PROMPT, Model
from tests.parity.tiny_models import make


@pytest.fixture(scope="module", params=["mamba2", "granite_hybrid"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path: Path = tmp_path_factory.mktemp(request.param)
    return Model(path, make(request.param, path))


@pytest.mark.parametrize("step_tokens", [7, 32, 512])
def test_chunks_of_prompts_beside_decode(model: Model, step_tokens: int) -> None:
    prompts = [model.prompt(1), model.prompt(2, 33), model.prompt(3, 5)]
    with model.engine(max_num_batched_tokens=step_tokens) as core:
        answers = model.run(core, *prompts)
    # A model that always generates the same tokens would prove little.
    assert len({token for answer in answers for token in answer.tokens}) > 8


def test_a_prompt_goes_on_from_its_checkpoint(model: Model) -> None:
    with model.engine() as core:
        block, prompt = model.block, model.prompt(1)
        (first,) = model.run(core, prompt)
        assert first.cached == 0
        # The last boundary before the last token, which is always computed.
        assert model.run(core, prompt)[0].cached == (PROMPT - 1) // block * block
        # The next turn: the last boundary of the answer, whose last token was not computed.
        turn = [*prompt, *first.tokens, 5, 17, 4]
        assert model.run(core, turn)[0].cached == (PROMPT + GENERATED - 1) // block * block


def test_a_branch_gets_a_checkpoint(model: Model) -> None:
    """Prompts with a common beginning: the second finds no state there and leaves one."""
    common = model.prompt(4, 100)
    with model.engine() as core:
        cached = [model.run(core, common + model.prompt(seed, 40))[0].cached for seed in (5, 6, 7)]
    assert cached[0] == 0
    assert cached[2] == 100 // model.block * model.block


def test_requests_that_are_preempted(model: Model) -> None:
    prompts = [model.prompt(seed, 14 + seed) for seed in range(12)]
    pool = (1 + model.pages(MODEL_LEN)) * model.page_bytes
    with model.engine(kv_cache_memory_bytes=str(pool), max_num_seqs=12) as core:
        model.run(core, *prompts)
        assert core.bindings.engine.stats().num_preemptions > 0


def test_a_saved_session_goes_on(model: Model, tmp_path: Path) -> None:
    # With the answer a whole number of blocks, whose last token is not computed: the last state is
    # that of the block before.
    length = 11 * 16 - GENERATED
    prompt, file = model.prompt(11, length), str(tmp_path / "session")
    with model.engine() as core:
        (answer,) = model.run(core, prompt)
        saved = core.bindings.engine.save_session(file, prompt + answer.tokens)
        assert saved == (length + GENERATED - 1) // model.block * model.block
    with model.engine() as core:
        restored, cached = core.bindings.engine.restore_session(file)
        assert (restored, cached) == (prompt + answer.tokens, saved)
        assert model.run(core, [*restored, 5, 17, 4])[0].cached == saved


def test_random_workloads(model: Model) -> None:
    """Prompts that share beginnings, in a pool that holds few: they hit checkpoints and lose them.
    Kernels give the same bits however a prompt is divided, so the tokens are exactly those of one
    request after the other without a cache."""
    rng = random.Random(5)
    prompts: list[list[int]] = []
    for seed in range(24):
        shared = rng.choice(prompts)[: rng.randrange(PROMPT)] if seed > 2 else []
        prompts.append(shared + model.prompt(100 + seed, rng.randrange(1, 60)))
    with model.engine(enable_prefix_caching=False) as core:
        alone = [small_engine.generate(core, [prompt], GENERATED)[0].tokens for prompt in prompts]
    pool = (1 + 2 * model.pages(MODEL_LEN)) * model.page_bytes
    with model.engine(kv_cache_memory_bytes=str(pool), max_num_seqs=24) as core:
        answers = small_engine.generate(core, prompts, GENERATED)
    assert [answer.tokens for answer in answers] == alone
    assert sum(answer.cached > 0 for answer in answers) > 3


def test_states_come_back_from_host_memory(model: Model) -> None:
    """A tier requires blocks of one size in all groups."""
    prompts = [model.prompt(seed) for seed in range(20, 28)]
    pool = (1 + model.pages(MODEL_LEN) * 3 // 2) * model.page_bytes
    sizes = {"block_size": model.block, "kv_cache_memory_bytes": str(pool)}
    with model.engine(**sizes, kv_offloading_bytes="32MiB") as core:
        # A block that is evicted while the thread that copies is busy is not kept.
        for _ in range(30):
            for prompt in prompts:
                model.run(core, prompt)
            if core.bindings.engine.stats().kv_loaded_tokens > 0:
                break
        assert core.bindings.engine.stats().kv_loaded_tokens > 0
        for prompt in prompts:
            model.run(core, prompt)
