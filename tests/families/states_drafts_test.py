"""Drafts on families with recurrent states: tokens are those of `transformers`, with prompts in
chunks, cached prefixes and preemption, whatever is rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.families.families import make
from tests.parity.engine_model import MODEL_LEN, Model
from tests.parity.executors import require_native

# One for each op with a state, alone or beside attention.
FAMILIES = ("lfm2", "mamba", "mamba2", "minimax", "qwen3_next", "recurrent_gemma", "rwkv", "rwkv7")
DRAFTS = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1}
TOKENS = 48  # generated


@pytest.fixture(name="model", scope="module", params=FAMILIES)
def _model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    require_native()
    path: Path = tmp_path_factory.mktemp(request.param)
    return Model(path, make(request.param, path))


def check(model: Model, **options: Any) -> None:
    """Prompts with a common beginning, in chunks, some of which repeat themselves, so that drafts
    are proposed from the start; then the next turn of one of them."""
    common = model.prompt(1, 37)
    prompts = [common * 3, [*common, 5], model.prompt(2, 9) * 8, [*common, 7, 7]]
    with model.engine(speculative_config=DRAFTS, max_num_seqs=3, **options) as core:
        answers = model.run(core, *prompts, num_tokens=TOKENS)
        # It continues from a checkpoint behind drafts.
        turn = [*prompts[0], *answers[0].tokens, 5]
        cached = model.run(core, turn, num_tokens=TOKENS)[0].cached
        assert cached >= (len(turn) - 2) // model.block * model.block or options
        stats = core.bindings.engine.stats()
    # How many are accepted is up to the text; most families accept some.
    assert stats.draft_tokens > stats.accepted_draft_tokens


@pytest.mark.parametrize("options", [{}, {"enable_prefix_caching": False}])
def test_tokens_are_those_of_the_reference(model: Model, options: dict[str, Any]) -> None:
    check(model, **options)


def test_the_torch_executor(tmp_path: Path) -> None:
    check(Model(tmp_path, make("mamba2", tmp_path)), executor="torch")


def test_requests_that_are_preempted(model: Model) -> None:
    pages = model.pages(MODEL_LEN, drafts=DRAFTS["num_speculative_tokens"])
    pool = str((1 + pages) * model.page_bytes)
    with model.engine(
        speculative_config=DRAFTS, kv_cache_memory_bytes=pool, max_num_seqs=8
    ) as core:
        prompts = [model.prompt(seed, 14 + seed) for seed in range(8)]
        model.run(core, *prompts, num_tokens=150)
        stats = core.bindings.engine.stats()
    # Requests whose layers all have states do not grow.
    assert stats.num_preemptions > 0 or not model.grows
