"""EAGLE and EAGLE-3 heads equal what the papers' networks compute, in torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.draft_heads.eagle_checkpoints import Head, make_eagle, make_eagle3
from tests.draft_heads.head_run import (
    KINDS,
    TOLERANCE,
    error,
    head_of,
    run,
    states_before,
    target_program,
)
from tests.draft_heads.targets import Target

Array = npt.NDArray[np.float32]


def _compare(target: Target, head: Head, method: str, kind: str, states: list[Array]) -> None:
    """A head's program, for states that the runner gives it."""
    before = [states_before(each) for each in states]
    built = head_of(target.path, method, head.path, rewrite=kind == "native")
    assert built.draft_states_width == states[0].shape[1]
    outputs = run(kind, built.program_text, target.prompts, before)
    for index, prompt in enumerate(target.prompts):
        if method == "eagle":
            passed = head.eagle(prompt, before[index], target.embeddings)
            with torch.no_grad():
                logits = target.reference.lm_head(torch.tensor(passed)).numpy()
        else:
            logits, passed = head.eagle3(prompt, before[index], target.embeddings)
        assert error(outputs["logits"][index], logits) <= TOLERANCE
        assert error(outputs["draft_states"][index], passed) <= TOLERANCE


@pytest.mark.parametrize("layout", ["of_the_target", "own_embeddings", "qwen3"])
@pytest.mark.parametrize("kind", KINDS)
def test_eagle(kind: str, layout: str, tmp_path: Path) -> None:
    target = Target(tmp_path)
    own, family = layout == "own_embeddings", "qwen3" if layout == "qwen3" else "llama"
    head = make_eagle(tmp_path / "head", target.config, embeds=own, family=family)
    states = [target.states(prompt)[-1] for prompt in target.prompts]
    _compare(target, head, "eagle", kind, states)


LAYOUTS: dict[str, dict[str, Any]] = {
    "published": {},
    "speculators": {"speculators": True},
    "narrower": {"hidden_size": 72},
    "qwen3": {"family": "qwen3"},
    "deepseek_v3": {"family": "deepseek_v3"},
    "normalized_states": {"norms": {f"fc_norm.{i}": 1 for i in range(3)}},
    "normalized_input": {"norms": {"input_norm": 3}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_eagle3(kind: str, layout: str, tmp_path: Path) -> None:
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config, **LAYOUTS[layout])
    text = target_program(target.path, "eagle3", head.path, rewrite=kind == "native")
    outputs = run(kind, text, target.prompts)
    assert head.tensors["fc.weight"].shape[1] == 3 * target.config.hidden_size
    for prompt, actual in zip(target.prompts, outputs["draft_states"], strict=True):
        entering = target.states(prompt)
        expected = head.joined([entering[layer] for layer in (2, 3, 4)])
        assert error(actual, expected) <= TOLERANCE
    _compare(target, head, "eagle3", kind, outputs["draft_states"])


def test_a_head_with_a_vocabulary_of_its_own(tmp_path: Path) -> None:
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config)
    built = head_of(target.path, "eagle3", head.path)
    assert list(built.draft_token_ids) == head.tensors["ids"].tolist()
    assert built.vocab_size == len(built.draft_token_ids)


@pytest.mark.parametrize(
    ("fields", "entered"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, (1, 3, 6)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}}, (1, 2, 4)),
    ],
    ids=["entered", "left"],
)
def test_layers_of_the_configuration(
    fields: dict[str, Any], entered: tuple[int, ...], tmp_path: Path
) -> None:
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config)
    _change(head.path, fields)
    outputs = run(
        "native", target_program(target.path, "eagle3", head.path, rewrite=True), [[5, 9]]
    )
    states = target.states([5, 9])
    expected = head.joined([states[layer] for layer in entered])
    assert error(outputs["draft_states"][0], expected) <= TOLERANCE


@pytest.mark.parametrize("family", ["gpt2", "granite", "llama", "mixtral"])
def test_logits_are_those_without_states(family: str, tmp_path: Path) -> None:
    target = Target(tmp_path, family)
    head = make_eagle3(tmp_path / "head", target.config)
    plain = build(ModelSource.open(target.path), BuildOptions()).program_text
    expected = run("native", plain, target.prompts)
    for method, path in (("mtp", None), ("eagle3", head.path)):
        text = target_program(target.path, method, path, rewrite=True)
        actual = run("native", text, target.prompts)
        for a, b in zip(actual["logits"], expected["logits"], strict=True):
            assert np.array_equal(a, b)


def _change(path: Path, fields: dict[str, Any]) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(
    ("method", "fields", "words"),
    [
        ("eagle", {}, 'is a head of EAGLE-3: use "method": "eagle3"'),
        ("eagle3", {"vocab_size": 250}, "has a vocabulary of 250 tokens, the model of 257"),
        ("eagle3", {"target_hidden_size": 64}, "reads hidden states of 64 numbers, the model's"),
        ("eagle3", {"draft_vocab_size": 60}, r"d2t has the shape \[61\], draft_vocab_size is 60"),
        ("eagle3", {"head_dim": 10**9}, "the configuration's head_dim is 1000000000, but"),
        ("eagle3", {"speculators_model_type": "mlp"}, "supported is eagle3"),
        ("eagle3", {"eagle_config": {"use_aux_hidden_state": False}}, "is not supported"),
        ("eagle3", {"eagle_aux_hidden_state_layer_ids": [9]}, "the model has 7 layers"),
        ("eagle3", {"eagle_aux_hidden_state_layer_ids": "2"}, "must list 1 to 8 layers"),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    method: str, fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    target = Target(tmp_path)
    head = make_eagle3(tmp_path / "head", target.config)
    _change(head.path, fields)
    with pytest.raises((ModelConfigError, WeightsError), match=words):
        target_program(target.path, method, head.path, rewrite=False)
        head_of(target.path, method, head.path)


def test_incomplete_heads_are_refused(tmp_path: Path) -> None:
    target = Target(tmp_path)
    eagle = make_eagle(tmp_path / "eagle", target.config)
    with pytest.raises(ModelConfigError, match='for one of EAGLE use "method": "eagle"'):
        head_of(target.path, "eagle3", eagle.path)
    head = make_eagle3(tmp_path / "head", target.config)
    stored = load_file(head.path / "model.safetensors")
    for missing, words in (
        ("d2t", "and no d2t that says which"),
        ("lm_head.weight", "d2t, but no lm_head"),
        ("norm.weight", "'norm.weight' is missing"),
    ):
        kept = {name: tensor for name, tensor in stored.items() if name != missing}
        save_file(kept, head.path / "model.safetensors")
        with pytest.raises((ModelConfigError, WeightsError), match=words):
            head_of(target.path, "eagle3", head.path)
