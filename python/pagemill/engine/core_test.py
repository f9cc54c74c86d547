"""EngineCore sizes the KV cache, refuses what does not fit, and runs both executors."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.llm import LLM
from pagemill.engine.loading import load
from pagemill.engine.outputs import EngineError

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")


def config(**options: Any) -> EngineConfig:
    return build(EngineConfig, {"model": SMOLLM2, **options})


def test_the_pool_has_the_size_that_was_asked_for() -> None:
    loaded = load(config(max_model_len=256, kv_cache_memory_bytes="16MiB"))
    engine = loaded.core.bindings.engine
    try:
        budget = loaded.core.budget
        assert budget.kv_bytes <= 16 * 2**20 < budget.kv_bytes + budget.kv_bytes // 10
        # The null block holds no tokens.
        assert engine.stats().kv_blocks_total == budget.num_blocks - 1
    finally:
        engine.shutdown()


def test_what_does_not_fit_is_refused_with_the_flag_that_would_make_it_fit() -> None:
    with pytest.raises(ConfigError, match=r"MiB.*--kv-cache-memory-bytes.*--max-model-len"):
        load(config(max_model_len=4096, kv_cache_memory_bytes="16MiB"))


def test_host_memory_for_kv_counts_as_memory() -> None:
    with pytest.raises(ConfigError, match=r"takes 8192\.00 GiB .*: lower --kv-offloading-bytes to"):
        load(config(max_model_len=256, kv_offloading_bytes="8TiB"))


def test_kv_of_prompts_that_do_not_fit_the_pool_comes_back_from_host_memory() -> None:
    options = {"max_model_len": 256, "kv_cache_memory_bytes": "7MiB"}
    prompts = [f"{word} " * 60 for word in ("one", "two", "three", "four")]
    with LLM(SMOLLM2, kv_offloading_bytes="64MiB", **options) as llm:
        # One by one: of what all fill in one step, no more is stored than half of the pool.
        first, again = (
            [llm.generate(prompt, temperature=0.0, max_tokens=4)[0] for prompt in prompts]
            for _ in range(2)
        )
    assert [o.choices[0].token_ids for o in first] == [o.choices[0].token_ids for o in again]
    assert all(output.num_cached_tokens >= 48 for output in again)


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e4m3", "int4", "int8", "k8v4"])
def test_a_kv_cache_of_bytes_is_refused_by_the_torch_executor(dtype: str) -> None:
    with pytest.raises(ConfigError, match=f"--kv-cache-dtype {dtype} needs --executor native"):
        load(config(max_model_len=128, executor="torch", kv_cache_dtype=dtype))


def test_a_kv_cache_of_few_bits_holds_more_tokens() -> None:
    tokens = {}
    for dtype in ("bf16", "int8", "fp8_e4m3", "int4", "k8v4"):
        options = {"kv_cache_memory_bytes": "7MiB", "kv_cache_dtype": dtype}
        loaded = load(config(max_model_len=256, **options))
        tokens[dtype] = loaded.core.budget.num_tokens
        loaded.core.bindings.engine.shutdown()
    assert tokens["int8"] > 1.8 * tokens["bf16"]
    assert tokens["fp8_e4m3"] > 1.95 * tokens["bf16"]
    assert tokens["int4"] > 3.4 * tokens["bf16"]
    assert tokens["k8v4"] > 2.35 * tokens["bf16"]  # 104 bytes in place of 256
    assert tokens["int8"] < tokens["k8v4"] < tokens["int4"]


def test_a_damaged_pack_is_made_again_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"max_model_len": 256, "cache_dir": str(tmp_path)}
    load(config(**options)).core.bindings.engine.shutdown()
    (pack,) = (tmp_path / "packed").glob("*.packed")
    with pack.open("r+b") as file:
        file.seek(50_000)
        file.write(b"damaged")
    with caplog.at_level("WARNING"):
        load(config(**options)).core.bindings.engine.shutdown()
    assert f"packed weights were written again: '{pack}' is damaged" in caplog.text


def test_bfloat16_is_bf16() -> None:
    tokens = {}
    for dtype in ("bf16", "bfloat16", "f32"):
        options = {"kv_cache_memory_bytes": "14MiB", "kv_cache_dtype": dtype}
        loaded = load(config(max_model_len=256, **options))
        tokens[dtype] = loaded.core.budget.num_tokens
        loaded.core.bindings.engine.shutdown()
    assert tokens["bfloat16"] == tokens["bf16"]
    # SmolLM2-135M: 30 layers, 3 KV heads of 64, K and V, 2 bytes each; blocks of 16 tokens.
    bytes_per_token = 30 * 3 * 64 * 2 * 2
    blocks = (14 << 20) // (16 * bytes_per_token)
    assert 16 * (blocks - 2) <= tokens["bfloat16"] <= 16 * blocks
    assert tokens["bf16"] > 1.9 * tokens["f32"]


def test_a_slow_type_of_activations_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        load(config(max_model_len=256, dtype="bfloat16")).core.bindings.engine.shutdown()
    assert "--dtype bfloat16 computes every operation with a plain kernel" in caplog.text


@pytest.mark.parametrize("dtype", ["fp8", "int8", "k8v4"])
def test_a_kv_cache_of_bytes_generates(dtype: str) -> None:
    with LLM(SMOLLM2, max_model_len=256, kv_cache_dtype=dtype) as llm:
        (output,) = llm.generate("The capital of France is", temperature=0.0, max_tokens=8)
    assert "Paris" in output.choices[0].text


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tiers_are_refused_where_kv_cannot_be_copied() -> None:
    with pytest.raises(ConfigError, match="need --executor native"):
        load(config(max_model_len=128, executor="torch", kv_offloading_bytes="64MiB"))


def test_a_torch_executor_without_torch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pagemill.engine.core.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="--executor torch needs torch: `pip install torch`"):
        load(config(max_model_len=128, executor="torch"))


def test_default_name_and_model_path() -> None:
    loaded = load(config(max_model_len=256, served_model_name=("a", "b")))
    assert (loaded.defaults.temperature, loaded.defaults.top_p) == (0.2, 0.9)  # as plan shows
    loaded.core.bindings.engine.shutdown()
    assert loaded.names == ("a", "b")
    assert loaded.source.path == Path(SMOLLM2).absolute()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_torch_executor_says_the_same() -> None:
    texts: list[list[str]] = []
    for executor in ("native", "torch"):
        with LLM(SMOLLM2, max_model_len=128, max_num_batched_tokens=128, executor=executor) as llm:
            outputs = llm.generate(
                ["The capital of France is", "1, 2, 3, 4,"], temperature=0.0, max_tokens=6
            )
            texts.append([output.choices[0].text for output in outputs])
    assert texts[0] == texts[1]


def drafts_of(model: str) -> dict[str, Any]:
    return {"method": "draft_model", "model": model, "num_speculative_tokens": 4}


def test_a_draft_model_counts_as_memory() -> None:
    options = {"max_model_len": 256, "kv_cache_memory_bytes": "16MiB"}
    plain = load(config(**options))
    drafting = load(config(**options, speculative_config=drafts_of(SMOLLM2)))
    try:
        assert plain.core.budget.kv_bytes == pytest.approx(drafting.core.budget.kv_bytes, rel=0.01)
        # The same model twice: each token takes twice the bytes.
        assert drafting.core.budget.num_tokens == pytest.approx(
            plain.core.budget.num_tokens / 2, rel=0.1
        )
    finally:
        for loaded in (plain, drafting):
            loaded.core.bindings.engine.shutdown()
    with pytest.raises(ConfigError, match=r"does not hold one request of 700 tokens.*--max-model"):
        load(config(**(options | {"max_model_len": 700}), speculative_config=drafts_of(SMOLLM2)))


def test_texts_and_sessions_with_a_draft_model_are_those_without(tmp_path: Path) -> None:
    prompt = "def is_prime(n):\n"
    options = {"max_model_len": 256, "max_num_seqs": 4}
    with LLM(SMOLLM2, **options) as llm:
        (expected,) = llm.generate(prompt, temperature=0.0, max_tokens=60)
        plain_path = tmp_path / "plain"
        llm.save_session(plain_path, expected)
    drafts = drafts_of(SMOLLM2)
    with LLM(SMOLLM2, speculative_config=drafts, **options) as llm:
        (output,) = llm.generate(prompt, temperature=0.0, max_tokens=60)
        assert output.choices[0].token_ids == expected.choices[0].token_ids
        path = tmp_path / "drafted"
        assert llm.save_session(path, output) > 0
    with LLM(SMOLLM2, speculative_config=drafts, **options) as llm:
        session = llm.restore_session(path)
        (again,) = llm.generate(session.token_ids, temperature=0.0, max_tokens=8)
        assert again.num_cached_tokens == session.num_cached_tokens > 0
        # Pages without the draft model's KV are another cache's.
        with pytest.raises(EngineError, match="FAILED_PRECONDITION"):
            llm.restore_session(plain_path)
    with LLM(SMOLLM2, **options) as llm:
        (plain,) = llm.generate(session.token_ids, temperature=0.0, max_tokens=8)
    assert again.choices[0].token_ids == plain.choices[0].token_ids
