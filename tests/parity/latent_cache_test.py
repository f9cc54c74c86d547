"""DeepSeek-V2 in the engine: the cache has one latent and one rotated key per token, and is shared,
moved and saved like any other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest
from pagemill import _native
from pagemill.config import ConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity.small_engine import (
    engine,
    generate_one,
    greedy_choices,
    random_prompt,
)
from tests.parity.tiny_models import make

PROMPT = 150
LAYERS, LATENT, ROPE = 3, 64, 16  # of the tiny model
Dtype = Literal["f32", "bf16", "fp8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    path = tmp_path_factory.mktemp("deepseek_v2_lite")
    return path, make("deepseek_v2_lite", path)


def prompt_of(seed: int) -> list[int]:
    return random_prompt(seed, PROMPT, 271)


def test_a_token_takes_one_latent_and_one_key(model: tuple[Path, PreTrainedModel]) -> None:
    built = build(ModelSource.open(model[0]), BuildOptions())
    assert [(group.name, group.kind) for group in built.kv_groups] == [("mla", "mla")]
    f8_row = LATENT + 16 + 2 * ROPE  # codes, one scale, a key in bf16
    sizes: dict[Dtype, int] = {
        "f32": 4 * (LATENT + ROPE),
        "bf16": 2 * (LATENT + ROPE),
        "fp8": f8_row,
    }
    for dtype, row_bytes in sizes.items():
        options = _native.ExecutorOptions(kv_cache_dtype=dtype)
        plan = _native.plan_memory(built.program_text, options)
        assert plan.kv_page_bytes == 16 * LAYERS * row_bytes


def test_prompts_that_begin_alike_share_latents(model: tuple[Path, PreTrainedModel]) -> None:
    path, reference = model
    first = prompt_of(1)
    second = [*first[:100], *prompt_of(2)[:30]]
    with engine(path) as core:
        tokens, cached = generate_one(core, first)
        assert (tokens, cached) == (greedy_choices(reference, first, tokens), 0)
        answer, cached = generate_one(core, second)
        assert (answer, cached) == (greedy_choices(reference, second, answer), 96)
        again = [*first, *tokens]
        answer, cached = generate_one(core, again)
        assert (answer, cached) == (greedy_choices(reference, again, answer), 160)


def test_latents_come_back_from_host_memory(model: tuple[Path, PreTrainedModel]) -> None:
    path, reference = model
    prompts = [prompt_of(seed) for seed in range(4)]
    # A page is 16 tokens of all layers, 15 KiB: 24 pages, of which a request takes 11.
    with engine(path, kv_cache_memory_bytes="360KiB", kv_offloading_bytes="8MiB") as core:
        first = [generate_one(core, prompt) for prompt in prompts]
        again, deadline = first, time.monotonic() + 30
        # Not of every prompt: a page may be taken before its content has been stored.
        while not any(cached for _, cached in again):
            assert time.monotonic() < deadline
            again = [generate_one(core, prompt) for prompt in prompts]
        assert core.bindings.engine.stats().kv_loaded_tokens > 0
    for prompt, (tokens, _), (same, _) in zip(prompts, first, again, strict=True):
        assert tokens == same == greedy_choices(reference, prompt, tokens)
    assert any(cached >= 16 for _, cached in again)


def test_a_saved_session_has_the_latents(
    model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    path, reference = model
    prompt, file = prompt_of(9), str(tmp_path / "session")
    with engine(path) as core:
        tokens, _ = generate_one(core, prompt)
        saved = core.bindings.engine.save_session(file, prompt + tokens)
    with engine(path) as core:
        restored, cached = core.bindings.engine.restore_session(file)
        assert (restored, cached) == (prompt + tokens, saved)
        question = [*restored, 5, 17, 4]
        answer, found = generate_one(core, question)
    assert found == saved > 128
    assert answer == greedy_choices(reference, question, answer)


def test_latents_in_fp8_come_back_from_host_memory(model: tuple[Path, PreTrainedModel]) -> None:
    """As the same bytes, so that answers are those of the prompts alone."""
    prompts = [prompt_of(seed) for seed in range(4)]
    with engine(model[0], kv_cache_dtype="fp8", enable_prefix_caching=False) as core:
        expected = [generate_one(core, prompt)[0] for prompt in prompts]
    sizes = {"kv_cache_memory_bytes": "126KiB", "kv_offloading_bytes": "8MiB"}  # 24 pages
    with engine(model[0], kv_cache_dtype="fp8", **sizes) as core:
        answers, deadline = [], time.monotonic() + 30
        while not any(cached for _, cached in answers):
            assert time.monotonic() < deadline
            answers = [generate_one(core, prompt) for prompt in prompts]
            assert [tokens for tokens, _ in answers] == expected
        assert core.bindings.engine.stats().kv_loaded_tokens > 0


def test_a_session_in_fp8_is_of_no_other_format(
    model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    prompt, file = prompt_of(9), str(tmp_path / "session")
    with engine(model[0], kv_cache_dtype="fp8") as core:
        tokens, _ = generate_one(core, prompt)
        saved = core.bindings.engine.save_session(file, prompt + tokens)
        whole, _ = generate_one(core, [*prompt, *tokens, 5])
    with (
        engine(model[0], kv_cache_dtype="bf16") as core,
        pytest.raises(_native.StatusError, match="another"),
    ):
        core.bindings.engine.restore_session(file)
    with engine(model[0], kv_cache_dtype="fp8") as core:
        restored, _ = core.bindings.engine.restore_session(file)
        answer, found = generate_one(core, [*restored, 5])
    assert found == saved > 128
    assert answer == whole


def test_types_that_no_kernel_stores_are_refused_by_name(
    model: tuple[Path, PreTrainedModel],
) -> None:
    for dtype in ("int4", "int8", "k8v4"):
        with (
            pytest.raises(ConfigError, match=f"{dtype} is not for latent attention: use fp8"),
            engine(model[0], kv_cache_dtype=dtype),
        ):
            pass
