"""KV of a model that two processes run leaves them and comes back: through tiers, folders, shared
memory and sessions, with the tokens of one process that keeps it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill import LLM, _native
from pagemill.engine.core import EngineCore
from pagemill.engine.outputs import EngineError
from pagemill.engine.text_batch import Output

from tests.parity.executors import require_native
from tests.parity.small_engine import engine, generate_one, random_prompt
from tests.parity.tiny_models import make, save, tiny_llama

PROMPT, GENERATED, SAVED = 20, 6, 16  # a full block is saved, a request takes two
OPTIONS: dict[str, Any] = {"max_model_len": 32}
RANKS = OPTIONS | {"tensor_parallel_size": 2}


def prompt_of(seed: int) -> list[int]:
    return random_prompt(seed, PROMPT, 257)


@pytest.fixture(params=[2, 1], ids=["divided", "replicated"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """With a KV head for each rank, and with one that both have."""
    require_native()
    path = tmp_path / "model"
    path.mkdir()
    save(tiny_llama(num_key_value_heads=request.param), path)
    return path


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    require_native()
    path = tmp_path / "model"
    path.mkdir()
    make("llama", path)
    return path


def tokens_of_one(path: Path, *prompts: list[int]) -> list[list[int]]:
    """Those of one process without tiers."""
    with engine(path, **OPTIONS) as core:
        return [generate_one(core, prompt, GENERATED)[0] for prompt in prompts]


def wait_for_stores(core: EngineCore, blocks: int) -> None:
    deadline = time.monotonic() + 30
    while core.engine.stats().kv_blocks_stored < blocks:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("medium", ["host", "disk"])
def test_evicted_blocks_of_all_ranks_come_back(medium: str, model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"kv_offloading_bytes": "1MiB"}
    if medium == "disk":
        options = {
            "kv_offloading_disk_path": str(tmp_path / "tier"),
            "kv_offloading_disk_bytes": "1MiB",
        }
    prompts = [prompt_of(1), prompt_of(2)]
    expected = tokens_of_one(model, *prompts)
    # Room for one request: each evicts the other's blocks, of which half may wait to be stored.
    with engine(model, kv_cache_memory_bytes="36KiB", **options, **RANKS) as core:
        deadline = time.monotonic() + 60
        while core.engine.stats().kv_loaded_tokens < 3 * SAVED:
            assert time.monotonic() < deadline
            answers = [generate_one(core, prompt, GENERATED) for prompt in prompts]
            assert [tokens for tokens, _ in answers] == expected
        assert core.engine.stats().num_failed_kv_loads == 0


def test_another_start_reads_folder_and_session(model: Path, tmp_path: Path) -> None:
    prompt, file = prompt_of(3), str(tmp_path / "session")
    (expected,) = tokens_of_one(model, prompt)
    folder = {"kv_connector_path": str(tmp_path / "blocks"), "kv_connector_bytes": "1MiB"}
    with engine(model, **RANKS, **folder) as core:
        tokens, _ = generate_one(core, prompt, GENERATED)
        assert core.engine.save_session(file, prompt + tokens) == SAVED
        wait_for_stores(core, 1)
    assert tokens == expected
    with engine(model, **RANKS, **folder) as core:
        assert generate_one(core, prompt, GENERATED) == (expected, SAVED)
        assert core.engine.stats().kv_loaded_tokens == SAVED
    with engine(model, **RANKS) as core:
        assert core.engine.restore_session(file) == (prompt + tokens, SAVED)
        assert generate_one(core, prompt, GENERATED) == (expected, SAVED)
    with engine(model, **OPTIONS, **folder) as core:  # one rank: neither is its own
        assert generate_one(core, prompt, GENERATED) == (expected, 0)
        with pytest.raises(_native.StatusError, match="with other ranks"):
            core.engine.restore_session(file)


def answer(core: EngineCore, prompt: list[int], params: dict[str, str], num_tokens: int) -> Any:
    """The last output of a request."""
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    core.engine.submit(1, np.array(prompt, np.int32), sampling, kv_transfer_params=params)
    tokens: list[int] = []
    while True:
        for output in core.engine.wait(30):
            tokens += output.new_token_ids
            if output.finish_reason is not None:
                return tokens, output


def test_engines_of_ranks_hand_kv_over(model: Path) -> None:
    prompt = prompt_of(4)
    (expected,) = tokens_of_one(model, prompt)
    shared = RANKS | {"kv_shared_memory_bytes": "1MiB"}
    with engine(model, **shared) as prefill, engine(model, **shared) as decode:
        _, sent = answer(prefill, prompt, {"do_remote_decode": "true"}, 1)
        tokens, output = answer(decode, prompt, sent.kv_transfer_params, GENERATED)
        assert (tokens, output.num_cached_tokens) == (expected, SAVED)
        assert decode.engine.stats().kv_loaded_tokens == SAVED


def test_names_of_kv_follow_the_weights_of_all_ranks(llama: Path, tmp_path: Path) -> None:
    other, file = tmp_path / "other", str(tmp_path / "session")
    other.mkdir()
    make("llama", other, seed=5)
    prompt = prompt_of(5)
    (of_one, of_other) = (*tokens_of_one(llama, prompt), *tokens_of_one(other, prompt))
    assert of_one != of_other
    types = {"activation_dtype": "f32", "kv_cache_dtype": "f32", "skip_tokenizer_init": True}
    with LLM(str(llama), kv_offloading_bytes="1MiB", pack_cache=False, **types, **RANKS) as llm:

        def ask() -> Output:
            (output,) = llm.generate(
                [prompt], max_tokens=GENERATED, temperature=0.0, ignore_eos=True
            )
            return output

        output = ask()
        assert llm.save_session(file, output) == SAVED
        llm.sleep(keep_kv=False)
        llm.wake()
        assert ask().choices[0].token_ids == of_one
        llm.update_weights(other)
        output = ask()
        assert (output.choices[0].token_ids, output.num_cached_tokens) == (of_other, 0)
        with pytest.raises(EngineError, match="another model"):
            llm.restore_session(file)
        llm.update_weights(llama)
        llm.restore_session(file)
        output = ask()
        assert (output.choices[0].token_ids, output.num_cached_tokens) == (of_one, SAVED)


def test_a_rank_that_dies_fails_sessions_and_not_the_shutdown(llama: Path, tmp_path: Path) -> None:
    with engine(llama, kv_offloading_bytes="1MiB", **RANKS) as core:
        tokens, _ = generate_one(core, prompt_of(6), GENERATED)
        assert core.workers is not None
        os.kill(core.workers.pids[0], signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(_native.StatusError, match="a rank of the model, has ended"):
            core.engine.save_session(str(tmp_path / "session"), prompt_of(6) + tokens)
    assert time.monotonic() - started < 10
