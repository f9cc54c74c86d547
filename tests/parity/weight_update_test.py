"""Other weights for a running engine: its tokens are then those of an engine that is started with
them, for programs with stacks, states, images and drafts, and what does not fit changes nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.config import build as build_config
from pagemill.engine.loading import load
from pagemill.engine.outputs import EngineError
from safetensors.torch import load_file, save_file

from tests.media.media_model import MediaTestModel, encoded, text
from tests.parity.small_engine import engine, generate_one, random_prompt, update_weights
from tests.parity.tiny_models import LLAVA_IMAGE, LLAVA_PLACEHOLDER, make

PROMPT = random_prompt(1, 70, 200)


def made(family: str, directory: Path, seed: int) -> Path:
    directory.mkdir()
    make(family, directory, seed=seed)
    return directory


def fresh(path: Path, prompt: list[int] = PROMPT) -> list[int]:
    with engine(path) as core:
        return generate_one(core, prompt)[0]


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "granite_hybrid"])
def test_tokens_are_those_of_the_weights(family: str, tmp_path: Path) -> None:
    one, two = made(family, tmp_path / "one", 1), made(family, tmp_path / "two", 2)
    of_one, of_two = fresh(one), fresh(two)
    assert of_one != of_two
    with engine(one) as core:
        assert generate_one(core, PROMPT)[0] == of_one
        update_weights(core, one, two)
        assert generate_one(core, PROMPT) == (of_two, 0)
        core.bindings.engine.sleep()
        update_weights(core, one, one)
        core.bindings.engine.wake()
        assert generate_one(core, PROMPT) == (of_one, 0)


def begun(native: _native.Engine, max_tokens: int) -> list[int]:
    """The first tokens of a request that `native` was paused in."""
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    for request_id in range(10**9, 10**9 + 20):  # on a busy machine, it may end before the pause
        native.submit(request_id, np.array(PROMPT, np.int32), sampling)
        tokens = list(native.wait(30)[0].new_token_ids)
        native.pause("keep")
        assert native.wait_paused(30)
        tokens += [token for output in native.poll() for token in output.new_token_ids]
        if len(tokens) < max_tokens:
            return tokens
        native.resume()
    raise AssertionError("no request was paused")


def test_a_request_under_way_goes_on_with_the_new_weights(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    with engine(one) as core:
        native = core.bindings.engine
        tokens = begun(native, 200)
        update_weights(core, one, two)
        native.resume()
        behind: list[int] = []
        while len(tokens) + len(behind) < 200:
            behind += [token for output in native.wait(30) for token in output.new_token_ids]
    assert behind[:24] == fresh(two, PROMPT + tokens)[: len(behind)]


def without(path: Path, name: str) -> None:
    tensors = load_file(path / "model.safetensors")
    del tensors[name]
    save_file(tensors, path / "model.safetensors")


def with_change(path: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = load_file(path / "model.safetensors")
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, path / "model.safetensors")


NORM, UP = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: without(path, NORM), NORM),
        (lambda path: with_change(path, UP, lambda t: t[:-32]), UP),
        (lambda path: with_change(path, UP, lambda t: t.bfloat16()), UP),
        (lambda path: (path / "model.safetensors").unlink(), "safetensors"),
        (lambda path: (path / "model.safetensors").write_bytes(b"no tensors"), "safetensors"),
        (shutil.rmtree, "two"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(
    spoil: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    spoil(two)
    with engine(one) as core:
        tokens, _ = generate_one(core, PROMPT)
        with pytest.raises((EngineError, _native.StatusError), match=words):
            update_weights(core, one, two)
        again, cached = generate_one(core, PROMPT)
        assert again == tokens and cached > 0


def test_cut_and_garbled_headers_change_nothing(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    file = two / "model.safetensors"
    whole = file.read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    rng = random.Random(3)
    with engine(one) as core:
        tokens, _ = generate_one(core, PROMPT)
        for _ in range(30):
            spoiled = bytearray(whole[: rng.randrange(header, len(whole))])
            for _ in range(rng.randrange(3)):
                spoiled[rng.randrange(header)] = rng.randrange(256)
            file.write_bytes(spoiled)
            with pytest.raises((EngineError, _native.StatusError)):
                update_weights(core, one, two)
        again, cached = generate_one(core, PROMPT)
        assert again == tokens and cached > 0


def test_another_configuration_is_not_read(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    expected = fresh(two)
    config = json.loads((two / "config.json").read_text(encoding="utf-8"))
    (two / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}), encoding="utf-8")
    with engine(one) as core:
        update_weights(core, one, two)
        assert generate_one(core, PROMPT)[0] == expected


def test_images_are_encoded_again_by_the_new_weights(tmp_path: Path) -> None:
    paths = made("llava", tmp_path / "one", 1), made("llava", tmp_path / "two", 2)
    one, two = (MediaTestModel(path, lambda ids, images: torch.zeros(0)) for path in paths)
    prompt = [text(1, 3) + [LLAVA_PLACEHOLDER] + text(2, 5)]
    image = [[np.random.default_rng(1).normal(size=LLAVA_IMAGE).astype(np.float32)]]
    with two.llm() as llm:
        (expected,) = two.generate(llm, prompt, image)
    with one.llm() as llm:
        (before,) = one.generate(llm, prompt, image)
        assert before.choices[0].token_ids != expected.choices[0].token_ids
        llm.update_weights(two.path)
        (after,) = one.generate(llm, prompt, image)
        assert after.choices[0].token_ids == expected.choices[0].token_ids
        assert encoded(llm) == 2
        llm.sleep()
        llm.wake()
        (awake,) = one.generate(llm, prompt, image)
        assert awake.choices[0].token_ids == expected.choices[0].token_ids


# Both are one model, so that what is packed of one serves the other, until the target changes.
def test_a_draft_model_keeps_its_weights(tmp_path: Path) -> None:
    one, two = made("llama", tmp_path / "one", 1), made("llama", tmp_path / "two", 2)
    drafts = {"method": "draft_model", "model": str(one), "num_speculative_tokens": 4}
    options = {"max_model_len": 360, "kv_cache_dtype": "f32", "activation_dtype": "f32"}
    config = build_config(
        EngineConfig, {"model": str(one), "speculative_config": drafts, **options}
    )
    of_one, of_two = fresh(one), fresh(two)
    core = load(config).core
    try:
        assert generate_one(core, PROMPT)[0] == of_one
        update_weights(core, one, two)
        assert generate_one(core, PROMPT)[0] == of_two
        core.bindings.engine.sleep()
        core.bindings.engine.wake()
        assert generate_one(core, PROMPT)[0] == of_two
        assert core.bindings.engine.stats().draft_tokens > 0
    finally:
        core.bindings.engine.shutdown()
