"""Gemma 3 with two KV groups: sliding layers let pages go, and tiers and sessions carry both."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill import _native
from transformers import PreTrainedModel

from tests.parity.small_engine import (
    GENERATED,
    engine,
    generate_one,
    greedy_choices,
    random_prompt,
)
from tests.parity.tiny_models import make

PROMPT = 300
POOL = "240KiB"  # 60 pages; a request of MODEL_LEN tokens takes 53


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    path = tmp_path_factory.mktemp("gemma3")
    return path, make("gemma3", path)


def prompt_of(seed: int) -> list[int]:
    return random_prompt(seed, PROMPT, 263)


def test_a_pool_too_small_for_all_layers_is_enough(
    model: tuple[Path, PreTrainedModel],
) -> None:
    """Sliding layers let go of the pages outside their window and the step."""
    path, reference = model
    prompt = prompt_of(1)
    with engine(path, kv_cache_memory_bytes=POOL) as core:
        tables = 7  # of one layer each
        assert core.budget.num_blocks < tables * -(-(PROMPT + GENERATED) // 16)
        tokens, _ = generate_one(core, prompt)
        assert core.seam.engine.stats().num_preemptions == 0
    assert tokens == greedy_choices(reference, prompt, tokens)


def test_a_long_context_takes_less_than_a_third() -> None:
    """15 of 18 layers of Gemma-3-270M slide by 512 tokens."""
    header = "pagemill-program 2\nfile 0 @\ngroup near sliding_window window=512\ngroup all full\n"
    near = [layer % 6 != 5 for layer in range(18)]
    caches = [f"cache kv{i} {'near' if near[i] else 'all'} kv kv 1,256\n" for i in range(18)]
    body = (
        "weight w f32 1,4 0 0\ninput token_ids i32 tokens\nvalue x f32 tokens,4\n"
        "op embedding token_ids,w -> x\noutput hidden x\nconstants 16\n" + "00" * 16 + "\n"
    )
    text, options = header + "".join(caches) + body, _native.ExecutorOptions()
    groups = _native.kv_groups(text, options)
    pages = _native.max_kv_pages(
        groups=groups, block_size=16, max_step_tokens=2048, num_tokens=32768
    )
    taken = pages * _native.plan_memory(text, options).kv_page_bytes
    all_full = 18 * 2 * 256 * 2 * 32768
    assert taken < all_full / 3


def test_kv_of_both_groups_comes_back_from_host_memory(
    model: tuple[Path, PreTrainedModel],
) -> None:
    path, reference = model
    prompts = [prompt_of(seed) for seed in range(4)]
    # Room for one request of all layers: each evicts the others.
    with engine(path, kv_cache_memory_bytes="720KiB", kv_offloading_bytes="32MiB") as core:
        first = [generate_one(core, prompt) for prompt in prompts]
        again = [generate_one(core, prompt) for prompt in prompts]
        assert core.seam.engine.stats().kv_loaded_tokens > 0
    for prompt, (tokens, _), (same, _) in zip(prompts, first, again, strict=True):
        assert tokens == same == greedy_choices(reference, prompt, tokens)
    assert all(cached >= 16 for _, cached in again)


def test_a_saved_session_has_both_groups(
    model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    path, reference = model
    prompt, file = prompt_of(9), str(tmp_path / "session")
    with engine(path) as core:
        tokens, _ = generate_one(core, prompt)
        saved = core.seam.engine.save_session(file, prompt + tokens)
        assert saved == (len(prompt) + GENERATED - 1) // 16 * 16
    with engine(path) as core:
        restored, cached = core.seam.engine.restore_session(file)
        assert (restored, cached) == (prompt + tokens, saved)
        question = [*restored, 5, 17, 4]
        answer, found = generate_one(core, question)
    assert found == saved
    assert answer == greedy_choices(reference, question, answer)
