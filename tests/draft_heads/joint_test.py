"""Medusa heads and MLP speculators equal what the papers' networks compute, in torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, BuiltModel, build
from pagemill.runner.joint_heads import build_joint_heads
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.draft_heads.head_run import KINDS, TOLERANCE, error, executor
from tests.draft_heads.joint_checkpoints import HEADS, make_medusa, make_mlp_speculator
from tests.families.families import make

Array = npt.NDArray[np.float32]

TOKENS = [3, 250, 17, 99, 4]
ROWS = [1, 2, 4]
"""The tokens whose logits are wanted."""


def _target(path: Path) -> PreTrainedModel:
    return make("llama", path / "target", changes={"tie_word_embeddings": False})


def _built(path: Path, method: str, *, drafts: int = HEADS, rewrite: bool = True) -> BuiltModel:
    source = ModelSource.open(path / "target")
    built = build(source, BuildOptions())
    heads = str(path / "heads")
    return build_joint_heads(method, heads, source, built, num_drafts=drafts, rewrite=rewrite)


def _run(kind: str, built: BuiltModel, states: Array) -> list[Array]:
    """The logits of each head."""
    arrays = {
        "token_ids": TOKENS,
        "positions": [7, 8, 9, 0, 1],
        "query_start": [0, 3, 5],
        "seq_lens": [10, 2],
        "logits_rows": ROWS,
        "media_rows": [],
    }
    batch: dict[str, Any] = {name: np.array(values, np.int32) for name, values in arrays.items()}
    batch |= {"kv": [], "inputs": {"draft_states": states}}
    outputs = executor(kind, built.program_text)(batch)
    names = ["logits", *(f"logits.{head}" for head in range(1, built.draft_heads))]
    assert sorted(outputs) == sorted(names)
    return [np.array(outputs[name]) for name in names]


def _states(width: int) -> Array:
    return np.random.default_rng(2).standard_normal((len(TOKENS), width)).astype(np.float32)


def _compare(kind: str, built: BuiltModel, states: Array, expected: list[Array]) -> None:
    assert built.draft_states_width == states.shape[1]
    assert built.draft_heads == len(expected) and not built.kv_groups
    for actual, logits in zip(_run(kind, built, states), expected, strict=True):
        assert error(actual, logits) <= TOLERANCE


@pytest.mark.parametrize("layout", ["authors", "vllm", "shared", "of_the_target"])
@pytest.mark.parametrize("kind", KINDS)
def test_medusa(kind: str, layout: str, tmp_path: Path) -> None:
    target = _target(tmp_path)
    projection = target.get_output_embeddings().weight.detach()
    heads = make_medusa(tmp_path / "heads", target.config, layout=layout, projection=projection)
    states = _states(target.config.hidden_size)
    built = _built(tmp_path, "medusa", rewrite=kind == "native")
    _compare(kind, built, states, heads.medusa(states[ROWS]))


SPECULATORS: dict[str, dict[str, Any]] = {
    "published": {},
    "narrower": {"inner": 48},
    "tied": {"inner": 48, "tied": True},
    "scaled": {"scales": True},
}


@pytest.mark.parametrize("layout", SPECULATORS)
@pytest.mark.parametrize("kind", KINDS)
def test_mlp_speculator(kind: str, layout: str, tmp_path: Path) -> None:
    """Each head reads what the one before it found most likely."""
    target = _target(tmp_path)
    heads = make_mlp_speculator(tmp_path / "heads", target.config, **SPECULATORS[layout])
    states = _states(target.config.hidden_size)
    built = _built(tmp_path, "mlp_speculator", rewrite=kind == "native")
    tokens = [TOKENS[row] for row in ROWS]
    _compare(kind, built, states, heads.mlp_speculator(tokens, states[ROWS]))


@pytest.mark.parametrize("method", ["medusa", "mlp_speculator"])
def test_heads_of_further_drafts_are_left_out(method: str, tmp_path: Path) -> None:
    target = _target(tmp_path)
    states = _states(target.config.hidden_size)
    if method == "medusa":
        projection = target.get_output_embeddings().weight.detach()
        heads = make_medusa(tmp_path / "heads", target.config, layout="vllm", projection=projection)
        expected = heads.medusa(states[ROWS])
    else:
        heads = make_mlp_speculator(tmp_path / "heads", target.config)
        expected = heads.mlp_speculator([TOKENS[row] for row in ROWS], states[ROWS])
    _compare("native", _built(tmp_path, method, drafts=2), states, expected[:2])


def _change(path: Path, fields: dict[str, Any]) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(
    ("target", "fields", "drafts", "words"),
    [
        ({"vocab_size": 250}, {}, 3, "has a vocabulary of 257 tokens, the model of 250"),
        ({"hidden_size": 48}, {}, 3, "reads hidden states of 96 numbers, the model's have 48"),
        ({}, {}, 4, "has 3 Medusa heads, .* set num_speculative_tokens .* to 3 or less"),
        ({}, {"num_heads": 5}, 3, "has 3 Medusa heads, its configuration states 5"),
    ],
)
def test_medusa_heads_that_do_not_fit_are_refused(
    target: dict[str, Any], fields: dict[str, Any], drafts: int, words: str, tmp_path: Path
) -> None:
    config = _target(tmp_path).config
    assert (config.vocab_size, config.hidden_size) == (257, 96)
    projection = _target(tmp_path).get_output_embeddings().weight
    make_medusa(tmp_path / "heads", config, layout="vllm", projection=projection)
    _change(tmp_path / "heads", fields)
    make("llama", tmp_path / "target", changes=target)
    with pytest.raises(ModelConfigError, match=words):
        _built(tmp_path, "medusa", drafts=drafts)


@pytest.mark.parametrize(
    ("fields", "drafts", "words"),
    [
        ({"vocab_size": 250}, 3, "has a vocabulary of 250 tokens, the model of 257"),
        ({"emb_dim": 64}, 3, "reads hidden states of 64 numbers, the model's have 96"),
        ({"inner_dim": 64}, 3, r"emb\.0\.weight"),
        ({"n_predict": 2}, 3, "has 2 heads, .* set num_speculative_tokens .* to 2 or less"),
        ({"n_predict": None}, 3, "needs n_predict > 0"),
        ({"inner_dim": "64"}, 3, "needs inner_dim > 0"),
    ],
)
def test_speculators_that_do_not_fit_are_refused(
    fields: dict[str, Any], drafts: int, words: str, tmp_path: Path
) -> None:
    make_mlp_speculator(tmp_path / "heads", _target(tmp_path).config)
    _change(tmp_path / "heads", fields)
    with pytest.raises((ModelConfigError, WeightsError), match=words):
        _built(tmp_path, "mlp_speculator", drafts=drafts)


def test_incomplete_heads_are_refused(tmp_path: Path) -> None:
    target = _target(tmp_path)
    projection = target.get_output_embeddings().weight
    make_medusa(tmp_path / "heads", target.config, layout="authors", projection=projection)
    file = tmp_path / "heads" / "model.safetensors"
    stored = load_file(file)
    kept = {name: tensor for name, tensor in stored.items() if not name.startswith("1.0.")}
    save_file(kept, file)
    with pytest.raises(ModelConfigError, match="has 1 Medusa heads, its configuration states 2"):
        _built(tmp_path, "medusa")
    save_file({**stored, "blocks.0.layers.0.weight": stored["0.0.linear.weight"].clone()}, file)
    with pytest.raises(WeightsError, match="another tensor are both"):
        _built(tmp_path, "medusa")
    save_file({"model.norm.weight": stored["0.0.linear.bias"]}, file)
    with pytest.raises(ModelConfigError, match="has no Medusa heads"):
        _built(tmp_path, "medusa")
    save_file({name: tensor for name, tensor in stored.items() if name != "1.2.weight"}, file)
    with pytest.raises(WeightsError, match=r"'lm_heads\.1\.weight' is missing"):
        _built(tmp_path, "medusa")
    save_file({**stored, "0.9.linear.weight": stored["0.0.linear.weight"].clone()}, file)
    with pytest.raises(WeightsError, match=r"does not use 1 of .*'blocks\.0\.layers\.9\.weight'"):
        _built(tmp_path, "medusa")


@pytest.mark.parametrize("module", ["emb", "proj", "ln", "head"])
def test_only_tied_heads_share_weights(module: str, tmp_path: Path) -> None:
    make_mlp_speculator(tmp_path / "heads", _target(tmp_path).config)
    file = tmp_path / "heads" / "model.safetensors"
    stored = load_file(file)
    del stored[f"speculator.{module}.2.weight"]
    save_file(stored, file)
    with pytest.raises(WeightsError, match=rf"'{module}\.2\.weight' is missing"):
        _built(tmp_path, "mlp_speculator")
