"""Tiny models of each family: tokens with draft tokens are those without.

The number of n-gram drafts depends on the time of steps. In test_device_test.py it does not, and
some are accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pagemill import _native
from pagemill.config import ConfigError

from tests.parity.executors import require_native
from tests.parity.small_engine import tokens_of
from tests.parity.tiny_decoders import DECODERS
from tests.parity.tiny_models import make

DRAFTS = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 1}


@pytest.mark.parametrize("family", DECODERS)
def test_tokens_are_those_without_drafts(family: str, tmp_path: Path) -> None:
    require_native()
    make(family, tmp_path)
    expected, _ = tokens_of(tmp_path)
    tokens, _ = tokens_of(tmp_path, speculative_config=DRAFTS)
    assert tokens == expected


def test_tokens_with_drafts_from_other_requests_are_those_without(tmp_path: Path) -> None:
    """Four requests run at a time, so later ones find the outputs of the first."""
    require_native()
    make("llama", tmp_path)
    prompts = [[5, 9, 100, 7, 3, 120, 8 * i] for i in (1, 2, 1, 2, 2, 1, 1, 2, 1, 2)]
    expected, _ = tokens_of(tmp_path, prompts=prompts)
    tokens, stats = tokens_of(tmp_path, prompts=prompts, speculative_config={"method": "suffix"})
    assert tokens == expected
    assert stats.accepted_draft_tokens > 0


def name_tokens(directory: Path, **changes: str) -> None:
    """A tokenizer with as many tokens as the model."""
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    pieces = {changes.get(f"t{index}", f"t{index}"): index for index in range(size)}
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}}))


def by_model(directory: Path) -> dict[str, Any]:
    return {"method": "draft_model", "model": str(directory), "num_speculative_tokens": 4}


# The target has windows, states, a latent cache, or other sizes of KV and vocabulary than the draft
# model.
@pytest.mark.parametrize("drafter", ["llama", "gemma3"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "deepseek_v2", "qwen3", "mamba2"])
def test_greedy_tokens_with_a_draft_model_are_those_without(
    family: str, drafter: str, tmp_path: Path
) -> None:
    require_native()
    target, draft = tmp_path / "target", tmp_path / "draft"
    make(family, target)
    make(drafter, draft, seed=5)
    name_tokens(target)
    name_tokens(draft)
    options = {"temperatures": (0.0,), "max_num_batched_tokens": 32, "kv_cache_dtype": "f32"}
    expected, _ = tokens_of(target, **options)
    tokens, stats = tokens_of(target, speculative_config=by_model(draft), **options)
    assert tokens == expected
    assert stats.draft_tokens > 0


@pytest.mark.parametrize("accepts", [False, True], ids=["refused", "accepted"])
def test_ranks_verify_the_drafts_of_rank_0(tmp_path: Path, accepts: bool) -> None:
    """Pages of a rank are half as large, and the draft model is whole."""
    require_native()
    target, draft = tmp_path / "target", tmp_path / "draft"
    make("llama", target)
    make("llama", draft, seed=5)
    name_tokens(target)
    name_tokens(draft)
    options = {"temperatures": (0.0,), "kv_cache_dtype": "f32", "activation_dtype": "f32"}
    expected, _ = tokens_of(target, **options)
    tokens, stats = tokens_of(
        target,
        speculative_config=by_model(target if accepts else draft),
        tensor_parallel_size=2,
        **options,
    )
    assert tokens == expected
    assert stats.draft_tokens > 0
    assert accepts == (stats.accepted_draft_tokens > stats.draft_tokens / 2)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_that_drafts_for_itself_is_right(family: str, tmp_path: Path) -> None:
    require_native()
    make(family, tmp_path)
    options = {"max_num_batched_tokens": 32, "kv_cache_dtype": "f32", "activation_dtype": "f32"}
    for temperature in (0.0, 0.5):
        _, stats = tokens_of(
            tmp_path, (temperature,), speculative_config=by_model(tmp_path), **options
        )
        assert stats.draft_tokens > 0
        # A request that ends by length drops the tokens accepted after that.
        assert stats.accepted_draft_tokens == stats.draft_tokens


@pytest.mark.parametrize(
    ("draft_family", "changes", "words"),
    [
        ("llama", {"t7": "seven"}, "token 7 is 'seven', not 't7'; use a model of the same family"),
        ("mamba2", {}, '"state_space" layers'),
    ],
)
def test_models_that_cannot_draft_are_refused(
    draft_family: str, changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    require_native()
    target, draft = tmp_path / "target", tmp_path / "draft"
    make("llama", target)
    make(draft_family, draft)
    name_tokens(target)
    name_tokens(draft, **changes)
    with pytest.raises((ConfigError, _native.StatusError), match=words):
        tokens_of(target, speculative_config=by_model(draft))


def test_a_draft_model_needs_the_native_executor(tmp_path: Path) -> None:
    require_native()
    make("llama", tmp_path)
    with pytest.raises(ConfigError, match="and --executor native"):
        tokens_of(tmp_path, speculative_config=by_model(tmp_path), executor="torch")
