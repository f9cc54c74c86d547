"""Gemma 3 with two KV groups: sliding layers free pages, and tiers and sessions store both."""

from __future__ import annotations

import itertools
import time
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
TABLES = 7  # of one layer each
POOL = "240KiB"  # 60 pages; a request of MODEL_LEN tokens takes 53


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    path = tmp_path_factory.mktemp("gemma3")
    return path, make("gemma3", path)


def prompt_of(seed: int) -> list[int]:
    return random_prompt(seed, PROMPT, 263)


@pytest.mark.parametrize("tier", [{}, {"kv_offloading_bytes": "32MiB"}], ids=["alone", "tier"])
def test_a_pool_too_small_for_all_layers_is_enough(
    tier: dict[str, str], model: tuple[Path, PreTrainedModel]
) -> None:
    """Sliding layers free the pages outside their window and the step."""
    path, reference = model
    prompt = prompt_of(1)
    with engine(path, kv_cache_memory_bytes=POOL, **tier) as core:
        assert core.budget.num_blocks < TABLES * -(-(PROMPT + GENERATED) // 16)
        tokens, _ = generate_one(core, prompt)
        # Pages that wait to be stored are not free.
        assert core.bindings.engine.stats().num_preemptions == 0 or tier
    assert tokens == greedy_choices(reference, prompt, tokens)


def test_a_long_context_takes_less_than_a_third() -> None:
    """15 of 18 layers of Gemma-3-270M slide by 512 tokens."""
    header = "pagemill-program 3\nfile 0 @\ngroup near sliding_window window=512\ngroup all full\n"
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


MEDIA = ("host", "folder")


def _medium(name: str, folder: Path) -> dict[str, str]:
    if name == "host":
        return {"kv_offloading_bytes": "32MiB"}
    return {"kv_connector_path": str(folder), "kv_connector_bytes": "64MiB"}


@pytest.mark.parametrize("medium", MEDIA)
def test_kv_of_both_groups_comes_back(
    medium: str, model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    """From another medium: pages freed by sliding layers were stored, and only those near the end
    are loaded."""
    path, reference = model
    # Room for what one request has computed: each evicts the other's.
    options = _medium(medium, tmp_path)
    with engine(path, kv_cache_memory_bytes="720KiB", **options) as core:
        is_loaded, deadline, seeds = False, time.monotonic() + 30, itertools.count()
        # A busy machine may drop what it cannot store in time, and find some of it in the pool:
        # then with other prompts.
        while not is_loaded:
            assert time.monotonic() < deadline
            prompts = [prompt_of(next(seeds)) for _ in range(2)]
            first = [generate_one(core, prompt) for prompt in prompts]
            before = core.bindings.engine.stats()
            again = [generate_one(core, prompt) for prompt in prompts]
            after = core.bindings.engine.stats()
            blocks = (after.kv_loaded_tokens - before.kv_loaded_tokens) // 16
            loaded = after.kv_blocks_loaded - before.kv_blocks_loaded
            is_loaded = all(cached for _, cached in again) and (
                0 < blocks <= loaded < TABLES * blocks / 2
            )
    for prompt, (tokens, _), (same, cached) in zip(prompts, first, again, strict=True):
        assert tokens == same == greedy_choices(reference, prompt, tokens)
        assert cached >= 16


def test_a_prefix_ends_where_a_window_was_stored(
    model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    """Another engine finds the beginning of a prompt in the folder, up to a token that the first
    one has computed in the middle of a step."""
    path, reference = model
    prompt = prompt_of(5)
    other = [*prompt[:120], *prompt_of(6)[:40]]
    # Half of the pool may wait to be stored: all blocks of the prompt.
    options = {"kv_cache_memory_bytes": "2MiB", **_medium("folder", tmp_path)}
    with engine(path, **options) as core:
        generate_one(core, prompt)
        stored, deadline = TABLES * ((PROMPT + GENERATED - 1) // 16), time.monotonic() + 30
        while core.bindings.engine.stats().kv_blocks_stored < stored:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    with engine(path, **options) as core:
        tokens, cached = generate_one(core, other)
        assert core.bindings.engine.stats().kv_loaded_tokens == cached == 112
    assert tokens == greedy_choices(reference, other, tokens)


def test_a_saved_session_has_both_groups(
    model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    path, reference = model
    prompt, file = prompt_of(9), str(tmp_path / "session")
    with engine(path) as core:
        tokens, _ = generate_one(core, prompt)
        saved = core.bindings.engine.save_session(file, prompt + tokens)
        assert saved == (len(prompt) + GENERATED - 1) // 16 * 16
    with engine(path) as core:
        restored, cached = core.bindings.engine.restore_session(file)
        assert (restored, cached) == (prompt + tokens, saved)
        question = [*restored, 5, 17, 4]
        answer, found = generate_one(core, question)
    assert found == saved
    assert answer == greedy_choices(reference, question, answer)
