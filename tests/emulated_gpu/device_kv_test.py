"""KV and weights that leave a device and come back, and draft models whose KV lies beside a
model's: on the emulated GPU, with the tokens of the CPU."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.core import EngineCore
from pagemill.engine.loading import load

from tests.parity.small_engine import (
    engine,
    generate,
    generate_one,
    random_prompt,
    update_weights,
)
from tests.parity.tiny_models import make, save, tiny_llama

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

# In f32, so that tokens are the CPU's.
OPTIONS = {"dtype": "f32", "max_model_len": 32}
PROMPT, GENERATED, SAVED = 20, 6, 16  # a full block is saved, a request takes two


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("llama", folder)
    return folder


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))


def prompt_of(seed: int) -> list[int]:
    return random_prompt(seed, PROMPT, 257)


def tokens_of_the_cpu(
    model: Path, prompts: list[list[int]], num_tokens: int = GENERATED
) -> list[list[int]]:
    with engine(model, device="cpu", **OPTIONS) as core:
        return [generate_one(core, prompt, num_tokens)[0] for prompt in prompts]


def wait_for_stores(core: EngineCore, blocks: int) -> None:
    deadline = time.monotonic() + 30
    while core.bindings.engine.stats().kv_blocks_stored < blocks:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("medium", "ranks"), [("host", 1), ("disk", 1), ("host", 2)])
def test_evicted_blocks_come_back(medium: str, ranks: int, model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"kv_offloading_bytes": "1MiB"}
    if medium == "disk":
        options = {
            "kv_offloading_disk_path": str(tmp_path / "tier"),
            "kv_offloading_disk_bytes": "1MiB",
        }
    prompts = [prompt_of(1), prompt_of(2)]
    expected = tokens_of_the_cpu(model, prompts)
    # Room for one request: each evicts the other's blocks, of which half may wait to be stored.
    options |= {"kv_cache_memory_bytes": f"{36 // ranks}KiB", "tensor_parallel_size": ranks}
    options |= {"device": "emulated", **OPTIONS}
    with engine(model, **options) as core:
        deadline = time.monotonic() + 60
        while core.bindings.engine.stats().kv_loaded_tokens < 16:
            assert time.monotonic() < deadline
            answers = [generate_one(core, prompt, GENERATED) for prompt in prompts]
            assert [tokens for tokens, _ in answers] == expected


@pytest.mark.parametrize("dtype", ["f32", "int4", "k8v4"])
def test_the_cpu_reads_blocks_and_sessions_of_the_device(
    dtype: str, model: Path, tmp_path: Path
) -> None:
    """They are those of the same model, type of activations and layout of the cache."""
    prompt, file = prompt_of(3), str(tmp_path / "session")
    options = OPTIONS | {"kv_cache_dtype": dtype}
    with engine(model, device="cpu", **options) as core:
        expected, _ = generate_one(core, prompt, GENERATED)
    folder = {"kv_connector_path": str(tmp_path / "blocks"), "kv_connector_bytes": "1MiB"}
    with engine(model, device="emulated", **options, **folder) as core:
        tokens, _ = generate_one(core, prompt, GENERATED)
        assert core.bindings.engine.save_session(file, prompt + tokens) == SAVED
        wait_for_stores(core, 1)
    assert tokens == expected
    for device in ("cpu", "emulated"):
        with engine(model, device=device, **options, **folder) as core:
            assert generate_one(core, prompt, GENERATED) == (expected, SAVED)
            assert core.bindings.engine.stats().kv_loaded_tokens == SAVED
        with engine(model, device=device, **options) as core:
            assert core.bindings.engine.restore_session(file) == (prompt + tokens, SAVED)
            assert generate_one(core, prompt, GENERATED) == (expected, SAVED)


def test_another_start_reads_a_session_of_ranks(model: Path, tmp_path: Path) -> None:
    prompt, file = prompt_of(8), str(tmp_path / "session")
    (expected,) = tokens_of_the_cpu(model, [prompt])
    ranks = OPTIONS | {"tensor_parallel_size": 2}
    with engine(model, device="emulated", **ranks) as core:
        tokens, _ = generate_one(core, prompt, GENERATED)
        assert core.bindings.engine.save_session(file, prompt + tokens) == SAVED
    assert tokens == expected
    for device in ("emulated", "cpu"):
        with engine(model, device=device, **ranks) as core:
            assert core.bindings.engine.restore_session(file) == (prompt + tokens, SAVED)
            assert generate_one(core, prompt, GENERATED) == (expected, SAVED)


def test_offloading_counts_as_host_memory(model: Path) -> None:
    options = {"device": "emulated", "kv_offloading_bytes": "4096TiB", **OPTIONS}
    with (
        pytest.raises(ConfigError, match="--kv-offloading-bytes takes .* of host memory"),
        engine(model, **options),
    ):
        pass


def name_tokens(directory: Path) -> None:
    """A tokenizer with as many tokens as the model."""
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    pieces = {f"t{index}": index for index in range(size)}
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}}))


@contextmanager
def drafting_engine(model: Path, draft: Path, **options: Any) -> Iterator[EngineCore]:
    drafts = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3}
    fields = {
        "model": str(model),
        "device": "emulated",
        "kv_cache_dtype": "f32",
        "max_num_batched_tokens": 32,
        "max_num_seqs": 4,
        "speculative_config": drafts,
        **OPTIONS,
        **options,
    }
    core = load(build_config(EngineConfig, fields)).core
    try:
        yield core
    finally:
        core.bindings.engine.shutdown()
        core.close_ranks()


@pytest.fixture(scope="module")
def drafted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with the same tokens."""
    draft = tmp_path_factory.mktemp("draft")
    make("llama", draft, seed=5)
    for each in (model, draft):
        name_tokens(each)
    return draft


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_with_a_draft_model_are_those_of_the_cpu(
    ranks: int, model: Path, tmp_path: Path
) -> None:
    """One that is so small that its drafts are worth their time, with larger blocks."""
    shape = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    save(tiny_llama(**shape, **heads), tmp_path)
    for each in (model, tmp_path):
        name_tokens(each)
    prompts, num_tokens = [prompt_of(4)[:7], [9]], 20
    expected = tokens_of_the_cpu(model, prompts, num_tokens)
    with drafting_engine(model, tmp_path, tensor_parallel_size=ranks) as core:
        answers = generate(core, prompts, num_tokens)
        assert core.bindings.engine.stats().draft_tokens > 0
    assert [answer.tokens for answer in answers] == expected


def test_a_session_has_the_draft_models_kv(model: Path, drafted: Path, tmp_path: Path) -> None:
    prompt, file = prompt_of(6), str(tmp_path / "session")
    (expected,) = tokens_of_the_cpu(model, [prompt])
    with drafting_engine(model, drafted) as core:
        tokens, _ = generate_one(core, prompt, GENERATED)
        saved = core.bindings.engine.save_session(file, prompt + tokens)
    assert (tokens, saved) == (expected, SAVED)
    with drafting_engine(model, drafted) as core:
        assert core.bindings.engine.restore_session(file)[1] == SAVED
        assert generate_one(core, prompt, GENERATED) == (expected, SAVED)
    with (
        engine(model, device="emulated", **OPTIONS) as core,
        pytest.raises(_native.StatusError, match="another"),
    ):
        core.bindings.engine.restore_session(file)


def test_tokens_after_sleep_and_updates_are_those_of_the_weights(
    model: Path, drafted: Path
) -> None:
    prompt = prompt_of(7)
    (expected,) = tokens_of_the_cpu(model, [prompt])
    (of_other,) = tokens_of_the_cpu(drafted, [prompt])
    assert of_other != expected
    with engine(model, device="emulated", **OPTIONS) as core:
        assert generate_one(core, prompt, GENERATED) == (expected, 0)
        for keep_kv in (True, False):
            core.engine.sleep(keep_kv=keep_kv)
            core.engine.wake()
            cached = SAVED if keep_kv else 0
            assert generate_one(core, prompt, GENERATED) == (expected, cached)
        update_weights(core, model, drafted)
        assert generate_one(core, prompt, GENERATED) == (of_other, 0)
        core.engine.sleep()
        update_weights(core, model, model)
        core.engine.wake()
        assert generate_one(core, prompt, GENERATED) == (expected, 0)
