"""A conversation that one process saves continues in another one without being computed again."""

import multiprocessing
import os
from pathlib import Path

import pytest

from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")

PROMPT = "Rivers carry water, sand and stories from the mountains to the sea. " * 12
NEXT = " And then"


def make(**options: object) -> LLM:
    return LLM(SMOLLM2, max_model_len=512, max_num_seqs=4, **options)


def first_turn(path: str) -> tuple[list[int], list[int], int]:
    """The tokens of a first turn, those of the next one, and how many were saved."""
    with make() as llm:
        (first,) = llm.generate(PROMPT, temperature=0.0, max_tokens=24)
        saved = llm.save_session(path, first)
        history = first.prompt_token_ids + first.choices[0].token_ids
        question = history + llm.renderer.encode(NEXT)
        (second,) = llm.generate(question, temperature=0.0, max_tokens=16)
        return history, second.choices[0].token_ids, saved


def next_turn(path: str) -> tuple[list[int], list[int], int]:
    """The restored tokens, those of the next turn, and how many of its prompt were cached."""
    with make() as llm:
        session = llm.restore_session(path)
        question = session.token_ids + llm.renderer.encode(NEXT)
        (second,) = llm.generate(question, temperature=0.0, max_tokens=16)
        return session.token_ids, second.choices[0].token_ids, second.num_cached_tokens


def test_a_new_process_goes_on_where_the_session_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "session")
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1, maxtasksperchild=1) as pool:
        history, expected, saved = pool.apply(first_turn, (path,))
    with spawn.Pool(1, maxtasksperchild=1) as pool:
        restored, tokens, cached = pool.apply(next_turn, (path,))
    assert restored == history
    assert tokens == expected
    # The last token of the first turn was sampled and never computed.
    assert saved == cached == (len(history) - 1) // 16 * 16


def test_a_session_of_k8v4_is_of_no_other_type(tmp_path: Path) -> None:
    path = tmp_path / "session"
    with make(kv_cache_dtype="k8v4") as llm:
        (first,) = llm.generate(PROMPT, temperature=0.0, max_tokens=4)
        saved = llm.save_session(path, first)
        history = first.prompt_token_ids + first.choices[0].token_ids
        (expected,) = llm.generate(history, temperature=0.0, max_tokens=8)
    with make(kv_cache_dtype="int8") as llm, pytest.raises(EngineError, match="another"):
        llm.restore_session(path)
    with make(kv_cache_dtype="k8v4") as llm:
        assert llm.restore_session(path).token_ids == history
        (second,) = llm.generate(history, temperature=0.0, max_tokens=8)
    assert second.num_cached_tokens == saved > 128
    assert second.choices[0].token_ids == expected.choices[0].token_ids


def test_a_pinned_prefix_stays_cached() -> None:
    with make(max_pinned_kv_blocks=16, kv_cache_memory_bytes=50 * 16 * 23040) as llm:
        (output,) = llm.generate(PROMPT, temperature=0.0, max_tokens=1)
        with pytest.raises(EngineError, match="NOT_FOUND"):
            llm.pin_prefix("Something else. " * 20)
        pin = llm.pin_prefix(output)
        assert pin.num_tokens == (len(output.prompt_token_ids)) // 16 * 16

        def cached() -> int:
            for i in range(4):  # more than the cache holds
                llm.generate(f"{i} " * 150, temperature=0.0, max_tokens=1)
            (again,) = llm.generate(PROMPT, temperature=0.0, max_tokens=1)
            return again.num_cached_tokens

        assert cached() > 0
        assert llm.unpin_prefix(pin)
        assert not llm.unpin_prefix(pin)
        assert cached() == 0


def test_refusals_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "session"
    with make() as llm:
        with pytest.raises(EngineError, match="NOT_FOUND"):
            llm.restore_session(path)
        with pytest.raises(EngineError, match="run them first"):
            llm.save_session(path, PROMPT)
        llm.generate(PROMPT, temperature=0.0, max_tokens=1)
        assert llm.save_session(path, PROMPT) > 0
        whole = path.read_bytes()
    with make(kv_cache_dtype="f32") as llm, pytest.raises(EngineError, match="another"):
        llm.restore_session(path)
    with make() as llm:
        path.write_bytes(whole[:-100])
        with pytest.raises(EngineError, match="DATA_LOSS"):
            llm.restore_session(path)
        path.write_bytes(b"not a session" * 100)
        with pytest.raises(EngineError, match="DATA_LOSS"):
            llm.restore_session(path)
        path.write_bytes(whole)
        assert llm.restore_session(path).num_cached_tokens > 0
    no_cache = make(enable_prefix_caching=False)
    with no_cache as llm, pytest.raises(EngineError, match="--enable-prefix-caching"):
        llm.save_session(path, PROMPT)
