"""Sleep, wake and other weights of a model that two processes run: its tokens are then those of an
engine that is started with them, and what one rank cannot take changes nothing on any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pagemill import LLM
from pagemill.engine.outputs import EngineError
from safetensors.torch import load_file, save_file

from tests.parity.executors import require_native
from tests.parity.small_engine import random_prompt
from tests.parity.tiny_models import make

PROMPT = random_prompt(1, 70, 200)
UP = "model.layers.1.mlp.up_proj.weight"


@contextmanager
def opened(path: Path, cache: Path) -> Iterator[LLM]:
    with LLM(
        str(path),
        max_model_len=360,
        kv_cache_memory_bytes="8MiB",
        activation_dtype="f32",
        kv_cache_dtype="f32",
        skip_tokenizer_init=True,
        cache_dir=str(cache),
        tensor_parallel_size=2,
    ) as llm:
        yield llm


def tokens(llm: LLM) -> list[int]:
    (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=24, ignore_eos=True)
    return output.choices[0].token_ids


def cached(llm: LLM) -> int:
    (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=1)
    return output.num_cached_tokens


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """Two of the same shapes."""
    require_native()
    for seed, name in enumerate(("one", "two"), 1):
        (tmp_path / name).mkdir()
        make("llama", tmp_path / name, seed=seed)
    return tmp_path / "one", tmp_path / "two"


def test_all_ranks_sleep_wake_and_take_other_weights(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = models
    with opened(two, tmp_path / "cache") as llm:
        of_two = tokens(llm)
    with opened(one, tmp_path / "cache") as llm:
        of_one = tokens(llm)
        assert of_one != of_two
        for keep_kv in (True, False):
            llm.sleep(keep_kv=keep_kv)
            with pytest.raises(EngineError, match="asleep"):
                tokens(llm)
            llm.wake()
            assert (cached(llm) > 0) == keep_kv
            assert tokens(llm) == of_one
        llm.update_weights(two)
        assert cached(llm) == 0
        assert tokens(llm) == of_two
        llm.sleep()
        llm.update_weights(one)
        llm.wake()
        assert tokens(llm) == of_one
        llm.update_weights(tensors=load_file(two / "model.safetensors").items())
        assert tokens(llm) == of_two


def test_weights_that_do_not_fit_change_no_rank(models: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = models
    tensors = load_file(two / "model.safetensors")
    with opened(one, tmp_path / "cache") as llm:
        before = tokens(llm)
        save_file(tensors | {UP: tensors[UP][:, :-1].contiguous()}, _file(two))
        with pytest.raises(EngineError):
            llm.update_weights(two)
        _file(two).unlink()
        with pytest.raises(EngineError):
            llm.update_weights(two)
        assert cached(llm) > 0
        assert tokens(llm) == before
        save_file(tensors, _file(two))
        llm.update_weights(two)
        assert tokens(llm) != before


def _file(model: Path) -> Path:
    return model / "model.safetensors"
