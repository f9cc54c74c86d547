"""Tensors that a trainer sends to a running engine: its tokens are then those of an engine that is
started with them, for tied and stacked weights and matrices that are rounded at load, and what does
not fit changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill import LLM, _native
from pagemill.config import ConfigError
from pagemill.engine.outputs import EngineError
from safetensors.torch import load_file, save_file

from tests.parity.converted_checkpoints import FourBits, write_four_bits, write_hqq
from tests.parity.gguf_files import write_gguf
from tests.parity.small_engine import random_prompt
from tests.parity.tiny_models import make, tiny_llama

PROMPT = random_prompt(1, 70, 200)
OPTIONS: dict[str, Any] = {
    "max_model_len": 360,
    "kv_cache_memory_bytes": "4MiB",
    "activation_dtype": "f32",
    "kv_cache_dtype": "f32",
    "skip_tokenizer_init": True,
}
SIZES = {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 4}
UP = "model.layers.1.mlp.up_proj.weight"


def made(family: str, directory: Path, seed: int, dtype: str = "f32") -> Path:
    directory.mkdir()
    make(family, directory, dtype, seed=seed)
    return directory


@contextmanager
def opened(path: Path, cache: Path, **options: Any) -> Iterator[LLM]:
    with LLM(str(path), cache_dir=str(cache), **{**OPTIONS, **options}) as llm:
        yield llm


def tokens(llm: LLM) -> list[int]:
    (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=24, ignore_eos=True)
    return output.choices[0].token_ids


def cached(llm: LLM) -> int:
    (output,) = llm.generate([PROMPT], temperature=0.0, max_tokens=1)
    return output.num_cached_tokens


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def mixed(one: Path, two: Path, directory: Path) -> Path:
    """The model in `one` with every second tensor of `two`."""
    made_of = tensors_of(one) | half(two)
    directory.mkdir()
    for file in one.iterdir():
        if file.suffix != ".safetensors":
            (directory / file.name).write_bytes(file.read_bytes())
    save_file(made_of, directory / "model.safetensors")
    return directory


def half(path: Path) -> dict[str, torch.Tensor]:
    tensors = sorted(tensors_of(path).items())
    return dict(tensors[::2])


@pytest.mark.parametrize(
    ("family", "dtype", "options"),
    [
        ("llama", "f32", {}),
        ("llama", "bf16", {}),
        ("llama", "bf16", {"quantization": "int8"}),
        ("llama", "bf16", {"quantization": "fp8", "quantization_config": {"ignore": ["layers.0"]}}),
        ("qwen3_moe", "bf16", {"quantization": "experts_int8"}),
        ("qwen3_moe", "f32", {}),
        ("granite_hybrid", "f32", {}),
    ],
)
def test_tokens_are_those_of_a_model_with_the_sent_tensors(
    family: str, dtype: str, options: dict[str, Any], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    one = made(family, tmp_path / "one", 1, dtype)
    two = made(family, tmp_path / "two", 2, dtype)
    both = mixed(one, two, tmp_path / "both")
    expected: list[list[int]] = []
    for path in (one, both, two):
        with opened(path, cache, **options) as llm:
            expected.append(tokens(llm))
    assert expected[0] != expected[1] != expected[2]
    with opened(one, cache, **options) as llm:
        assert tokens(llm) == expected[0]
        llm.update_weights(tensors=half(two).items(), weight_version="both")
        assert cached(llm) == 0
        assert tokens(llm) == expected[1]
        llm.sleep()
        llm.wake()
        assert tokens(llm) == expected[1]
        llm.update_weights(tensors=tensors_of(two).items())
        assert tokens(llm) == expected[2]
        assert llm.weight_version == "both"
        llm.sleep()
        llm.update_weights(tensors=tensors_of(one).items())
        llm.wake()
        assert tokens(llm) == expected[0]
        llm.update_weights(tensors=half(two).items())
        llm.update_weights(one, weight_version="one")
        assert (tokens(llm), llm.weight_version) == (expected[0], "one")


def test_a_draft_model_of_the_same_files_keeps_its_weights(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    drafts = {"method": "draft_model", "model": str(one), "num_speculative_tokens": 4}
    with opened(two, tmp_path / "cache") as llm:
        expected = tokens(llm)
    with opened(one, tmp_path / "cache", speculative_config=drafts) as llm:
        before = tokens(llm)
        for sent in (two, one):  # of the first, the draft model is not to have a part
            llm.update_weights(tensors=tensors_of(sent).items())
        assert tokens(llm) == before
        stats = llm.stats()
        assert stats.accepted_draft_tokens == stats.draft_tokens > 0
        llm.update_weights(tensors=tensors_of(two).items())
        assert before != tokens(llm) == expected


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({UP: torch.zeros(3, 4)}, "but the tensor of .* is f32"),
        ({UP: torch.zeros(128, 64, dtype=torch.bfloat16)}, "is bf16"),
        ({"model.layers.99.mlp.up_proj.weight": torch.zeros(1)}, "layers.99.*is no tensor of"),
        ({"": torch.zeros(1)}, "is no tensor of"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(
    tensors: dict[str, torch.Tensor], words: str, tmp_path: Path
) -> None:
    one = made("llama", tmp_path / "one", 1)
    changed = {"model.norm.weight": tensors_of(one)["model.norm.weight"] * 2}
    with opened(one, tmp_path / "cache") as llm:
        before = tokens(llm)
        with pytest.raises(EngineError, match=words):
            llm.update_weights(tensors=(changed | tensors).items(), weight_version="new")
        assert not llm.is_paused
        assert cached(llm) > 0
        assert (tokens(llm), llm.weight_version) == (before, "")
        with pytest.raises(ValueError, match="a path, or tensors"):
            llm.update_weights(one, tensors=changed.items())


def test_stages_take_no_tensors(tmp_path: Path) -> None:
    one = made("llama", tmp_path / "one", 1)
    with (
        opened(one, tmp_path / "cache", pipeline_parallel_size=2) as llm,
        pytest.raises(EngineError, match="--pipeline-parallel-size 1"),
    ):
        llm.update_weights(tensors=tensors_of(one).items())


def gguf_file(directory: Path) -> Path:
    write_gguf(tiny_llama(), "llama", directory / "model.gguf", "F32")
    return directory / "model.gguf"


def bitsandbytes(directory: Path) -> Path:
    write_four_bits(tiny_llama(**SIZES), directory, FourBits())
    return directory


def hqq(directory: Path) -> Path:
    write_hqq(tiny_llama(**SIZES), directory, 1)
    return directory


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (gguf_file, "is a GGUF file, whose tensors have formats of its own"),
        (bitsandbytes, r"is converted when it is loaded \(bitsandbytes\)"),
        (hqq, r"is converted when it is loaded \(hqq\)"),
    ],
)
def test_formats_of_their_own_take_no_tensors(
    write: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    with opened(write(tmp_path / "model"), tmp_path / "cache") as llm:
        before = tokens(llm)
        norm = {"model.norm.weight": torch.zeros(96, dtype=torch.bfloat16)}
        with pytest.raises(EngineError, match=words):
            llm.update_weights(tensors=norm.items())
        assert tokens(llm) == before


def test_the_folder_must_exist(tmp_path: Path) -> None:
    one = made("llama", tmp_path / "one", 1)
    with (
        pytest.raises(ConfigError, match="--weight-transfer-dir: .*none cannot keep"),
        opened(one, tmp_path / "cache", weight_transfer_dir=str(tmp_path / "none")),
    ):
        pass


def test_requests_under_way_continue_with_the_sent_tensors(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    with opened(one, tmp_path / "cache") as llm:
        native = llm._loaded.core.bindings.engine  # noqa: SLF001  (a request that stays under way)
        sampling = _native.SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
        native.submit(10**9, np.array(PROMPT, np.int32), sampling)
        begun = list(native.wait(30)[0].new_token_ids)
        llm.update_weights(tensors=tensors_of(two).items())
        while len(begun) < 200:
            begun += [token for output in native.wait(30) for token in output.new_token_ids]
    assert len(begun) == 200
