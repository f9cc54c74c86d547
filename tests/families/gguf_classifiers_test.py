"""Scores from GGUF files of classifiers, as llama.cpp's converter writes them, equal those of
`transformers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from pagemill.inputs.task import Task
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from transformers import PretrainedConfig, PreTrainedModel, Qwen3ForCausalLM

from tests.families.encoders import LABELS, make
from tests.families.families import make as make_decoder
from tests.families.gguf_converters import Converter, Tensors
from tests.families.gguf_files import write_gguf
from tests.parity.executors import make_executor, new_batches

TOLERANCE = 1e-4  # as in encoders_test.py
LENGTHS = (61, 1, 33)
NAMES = ["bad", "so-so", "good"]
YES, NO = 70, 9
_PREFIX = re.compile(r"^(bert|distilbert|model|roberta)\.")


def _named(tensors: Tensors, config: PretrainedConfig) -> Tensors:
    """Without the prefix of the model, BERT's pooler and RoBERTa's first positions."""
    changed: Tensors = {}
    for name, values in tensors.items():
        name = _PREFIX.sub("", name)
        if name == "embeddings.position_embeddings.weight" and "roberta" in config.model_type:
            values = values[1 + config.pad_token_id :]
        if not name.startswith("pooler."):
            changed[re.sub(r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1", name)] = (
                values
            )
    return changed


def _settings(config: PretrainedConfig) -> Mapping[str, Any]:
    return {
        "causal_attention": False,
        "context_length": config.max_position_embeddings,
        "layer_norm_eps": getattr(config, "layer_norm_eps", 1e-12),
    }


def _modern_settings(config: PretrainedConfig) -> Mapping[str, Any]:
    return {
        "layer_norm_eps": config.norm_eps,
        "sliding_window": config.local_attention,
        "sliding_window_pattern": 2,
        "rope_freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
        "pooling_type": gguf.PoolingType.RANK,
        "classifier_output_labels": NAMES,
    }


_PLAIN = Converter(_named, _settings)
_RANK = Converter(
    _named, lambda config: {**_settings(config), "pooling_type": gguf.PoolingType.RANK}
)
_LABELED = Converter(
    _named, lambda config: {**_settings(config), "classifier_output_labels": NAMES}
)
_DISTILBERT = Converter(
    _named, lambda config: {**_settings(config), "feed_forward_length": config.hidden_dim}
)
_MODERN = Converter(_named, _modern_settings)


@dataclass(frozen=True)
class Row:
    family: str
    architecture: str
    converter: Converter
    names: tuple[str, ...] = tuple(f"LABEL_{i}" for i in range(LABELS))
    changes: Mapping[str, Any] | None = None


_MEAN = {
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "classifier_pooling": "mean",
}
ROWS = [
    Row("roberta", "bert", _LABELED, tuple(NAMES)),
    Row("xlm_roberta", "bert", _RANK),
    Row("distilbert", "bert", _DISTILBERT),
    Row("modernbert", "modern-bert", _MODERN, tuple(NAMES), _MEAN),
    Row("modernbert_biases", "modern-bert", _MODERN, tuple(NAMES), _MEAN),
]


def _rows(source: ModelSource, prompts: Mapping[int, list[int]]) -> np.ndarray:
    run = make_executor("native", source, task=Task.CLASSIFY)
    return run(new_batches(run).step(prompts))["pooled"]


def _prompts() -> dict[int, list[int]]:
    rng = np.random.default_rng(3)
    return {i: rng.integers(6, 257, length).tolist() for i, length in enumerate(LENGTHS)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.family)
def test_rows(row: Row, tmp_path: Path) -> None:
    """A tensor that is not read is an error, too."""
    reference = make(row.family, Task.CLASSIFY, tmp_path, changes=row.changes)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, row.architecture, path, row.converter)
    source = ModelSource.open(path)
    pooled = build(source, BuildOptions()).pooled
    assert pooled is not None and pooled.task is Task.CLASSIFY and pooled.labels == row.names
    prompts = _prompts()
    with torch.no_grad():
        expected = [reference(torch.tensor([prompt])).logits[0] for prompt in prompts.values()]
    scale = max(1, max(float(row.abs().max()) for row in expected))
    np.testing.assert_allclose(
        _rows(source, prompts), torch.stack(expected).numpy(), atol=TOLERANCE * scale
    )


def test_files_without_berts_pooler_are_refused(tmp_path: Path) -> None:
    """If they say that they are classifiers; others are encoders."""
    reference = make("bert", Task.CLASSIFY, tmp_path)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "bert", path, _RANK)
    with pytest.raises(WeightsError, match=r"the file lacks cls.weight, as files of BERT's"):
        ModelSource.open(path)
    write_gguf(reference, tmp_path, "bert", path, _PLAIN)
    pooled = build(ModelSource.open(path), BuildOptions()).pooled
    assert pooled is not None and pooled.task is Task.EMBED


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    reference = make("roberta", Task.CLASSIFY, tmp_path, labels=2)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "bert", path, _LABELED)
    with pytest.raises(WeightsError, match=r"output_labels are 3, but cls.output.weight has 2"):
        ModelSource.open(path)


_FULL = {"use_sliding_window": False, "layer_types": ["full_attention"] * 4}


def _reranker(labels: list[str], *, tied: bool) -> Converter:
    """The rows of two tokens beside the table of tokens, or in place of the head."""

    def change(tensors: Tensors, config: PretrainedConfig) -> Tensors:
        del config
        head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        rows = head[[YES if label == "yes" else NO for label in labels]]
        kept = {name: v for name, v in tensors.items() if tied or name != "lm_head.weight"}
        return kept | {"cls.output.weight": rows}

    settings = {"pooling_type": gguf.PoolingType.RANK, "classifier_output_labels": labels}
    return Converter(change, lambda config: settings)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("labels", [["yes", "no"], ["no", "yes"]])
def test_rerankers_that_answer(tied: bool, labels: list[str], tmp_path: Path) -> None:
    """The score is the probability of "yes" beside "no"."""
    reference = make_decoder("qwen3", tmp_path, changes=_FULL | {"tie_word_embeddings": tied})
    assert isinstance(reference, Qwen3ForCausalLM)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "qwen3", path, _reranker(labels, tied=tied))
    source = ModelSource.open(path)
    pooled = build(source, BuildOptions()).pooled
    assert pooled is not None and pooled.task is Task.CLASSIFY
    assert (pooled.labels, pooled.activation) == (("yes",), "sigmoid")
    prompts = _prompts()
    with torch.no_grad():
        logits = [reference(torch.tensor([prompt])).logits[0, -1] for prompt in prompts.values()]
    expected = np.stack([[float(row[YES] - row[NO])] for row in logits])
    scale = max(1, np.abs(expected).max())
    np.testing.assert_allclose(_rows(source, prompts), expected, atol=TOLERANCE * scale)


def test_other_answers_are_refused(tmp_path: Path) -> None:
    reference: PreTrainedModel = make_decoder("qwen3", tmp_path, changes=_FULL)
    path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "qwen3", path, _reranker(["yes", "maybe"], tied=True))
    with pytest.raises(
        WeightsError, match="output_labels is 'yes, maybe'; known of qwen3.*use the"
    ):
        ModelSource.open(path)
