"""Layers behind encoders give what sentence-transformers, PyLate, ColBERT and FlagEmbedding compute
of the vectors of `transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.inputs.scoring import activated
from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.families import heads
from tests.families.divided import check_ranks
from tests.families.encoders import make
from tests.families.heads import Headed
from tests.parity.executors import EXECUTORS, make_executor, new_batches

# Both sides compute in f32; vectors have the length 1 or elements of about 1.
TOLERANCE = 1e-5
PROMPTS = {0: list(range(6, 40)), 1: [7], 2: list(range(90, 70, -1))}

Make = Callable[[Path], Headed]
CASES: dict[str, Make] = {
    "dense": heads.dense,
    "pylate": heads.pylate,
    "colbert": heads.colbert,
    "bge_m3": heads.bge_m3,
    "bge_m3_tokens": partial(heads.bge_m3, task=Task.TOKEN_EMBED),
    "bge_m3_weights": partial(heads.bge_m3, task=Task.TOKEN_CLASSIFY),
    "qwen3_reranker": partial(heads.qwen3_reranker, tokens=(40, 9)),
    "qwen3_tokens": partial(heads.qwen3_reranker, tokens=(40, 9), opposed=False),
    "step_rewards": heads.step_rewards,
    "steps_by_tokens": partial(heads.step_rewards, tokens=(40, 9)),
    "rewards": heads.rewards,
    "internlm2_rewards": heads.internlm2_rewards,
    "calibrated": heads.calibrated,
    "llama_bidirectional": heads.llama_bidirectional,
    "llama_bidirectional_reranker": partial(heads.llama_bidirectional, task=Task.CLASSIFY),
    "splade": heads.splade,
    "splade_distilbert": partial(heads.splade, name="distilbert"),
    "splade_albert": partial(heads.splade, name="albert"),
    "splade_rembert": partial(heads.splade, name="rembert"),
    "splade_roformer": partial(heads.splade, name="roformer"),
    "splade_roberta": partial(heads.splade, name="roberta"),
}


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str, tmp_path: Path) -> None:
    headed = CASES[name](tmp_path)
    source = ModelSource.open(tmp_path)
    # Files say what the model is for, except which of BGE-M3's tasks.
    task = headed.task if name.startswith("bge_m3") else None
    pooled = build(source, BuildOptions(rewrite=False, task=task)).pooled
    assert pooled is not None and pooled.task is headed.task
    expected = [headed.expected(prompt).numpy() for prompt in PROMPTS.values()]
    assert pooled.width == expected[0].shape[-1]
    for kind in EXECUTORS:
        run = make_executor(kind, source, task=task)
        rows = run(new_batches(run).step(PROMPTS))["pooled"]
        if headed.task.by_token:
            ends = np.cumsum([len(prompt) for prompt in PROMPTS.values()])[:-1]
            prompts = map(np.array, PROMPTS.values())
            parts = list(map(pooled.rows, np.split(rows, ends), prompts))
        else:
            parts = [pooled.rows(row, np.array([])) for row in rows]
        for part, wanted in zip(parts, expected, strict=True):
            part = activated(part, pooled.activation)
            np.testing.assert_allclose(part, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["dense", "splade", "splade_albert", "splade_rembert"])
def test_two_ranks(name: str, tmp_path: Path) -> None:
    """Ranks divide the vocabulary of a head."""
    headed = CASES[name](tmp_path)
    expected = np.stack([headed.expected(prompt).numpy() for prompt in PROMPTS.values()])

    def distance(rows: np.ndarray) -> float:
        return float(np.abs(rows - expected).max()) / TOLERANCE

    check_ranks(ModelSource.open(tmp_path), BuildOptions(), [PROMPTS], distance)


def test_splade_by_option(tmp_path: Path) -> None:
    """Of a checkpoint that says nothing of sentence-transformers."""
    headed = heads.splade(tmp_path, modules=False)
    run = make_executor("native", ModelSource.open(tmp_path), task=Task.EMBED, pooling="splade")
    rows = run(new_batches(run).step({0: PROMPTS[0]}))["pooled"]
    expected = headed.expected(PROMPTS[0]).numpy()
    assert (expected == 0).mean() > 0.1  # of padding, or of logits below 0
    np.testing.assert_allclose(rows[0], expected, rtol=0, atol=TOLERANCE)


def test_a_model_without_the_head_is_refused(tmp_path: Path) -> None:
    make("modernbert", Task.TOKEN_EMBED, tmp_path)
    with pytest.raises(ModelConfigError, match="the head of a masked language model"):
        build(ModelSource.open(tmp_path), BuildOptions(task=Task.EMBED, pooling="splade"))


def test_poolings_that_do_not_suit_a_task_are_refused(tmp_path: Path) -> None:
    make("bert", Task.CLASSIFY, tmp_path)
    with pytest.raises(ModelConfigError, match="--task classify has no pooling 'splade'"):
        build(ModelSource.open(tmp_path), BuildOptions(pooling="splade"))


@pytest.mark.parametrize("shape", [(), (0, 96), (3, 4, 8)])
def test_layers_that_are_no_matrices_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    heads.colbert(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"linear.weight": torch.zeros(shape)}, file)
    with pytest.raises(WeightsError, match=r"linear\.weight is of the shape"):
        build(ModelSource.open(tmp_path), BuildOptions())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"classifier_from_token": ["w40", "maybe"]}, "has no token 'maybe'"),
        ({"classifier_from_token": "w40"}, "a list of 1 to 64 tokens"),
        ({"classifier_from_token": ["w40"]}, "needs 2 tokens, not 1"),
        ({"method": "mean"}, "method is 'mean'"),
    ],
)
def test_tokens_that_are_no_classes(keys: dict[str, object], words: str, tmp_path: Path) -> None:
    heads.qwen3_reranker(tmp_path, (40, 9))
    with pytest.raises((ModelConfigError, WeightsError), match=words):
        build(ModelSource.open(tmp_path, keys), BuildOptions())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"logit_sigma": 0}, "logit_sigma is 0; it must be greater than 0"),
        ({"logit_sigma": "2"}, "logit_sigma is '2', not a number of logits"),
        ({"logit_mean": float("nan")}, "logit_mean is nan, not a number of logits"),
    ],
)
def test_calibrations_that_are_none(keys: dict[str, object], words: str, tmp_path: Path) -> None:
    heads.calibrated(tmp_path)
    with pytest.raises(WeightsError, match=words):
        build(ModelSource.open(tmp_path, keys), BuildOptions())


@pytest.mark.parametrize(
    ("folder", "fields", "words"),
    [
        ("2_Dense", {"activation_function": "torch.nn.Softsign"}, "the activation 'Softsign'"),
        ("2_Dense", {"out_features": 0}, "out_features is 0"),
        ("2_Dense", {"use_residual": True}, "use_residual"),
        ("2_Dense", {"out_features": 41}, r"dense_modules\.0\.linear"),
    ],
)
def test_modules_that_are_not_supported(
    folder: str, fields: dict[str, object], words: str, tmp_path: Path
) -> None:
    heads.dense(tmp_path)
    file = tmp_path / folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises((ModelConfigError, WeightsError), match=words):
        build(ModelSource.open(tmp_path), BuildOptions())


def test_a_module_without_tensors_is_refused(tmp_path: Path) -> None:
    heads.dense(tmp_path)
    (tmp_path / "3_Dense" / "pytorch_model.bin").unlink()
    with pytest.raises(
        WeightsError, match=r"has neither model\.safetensors nor pytorch_model\.bin"
    ):
        ModelSource.open(tmp_path)
