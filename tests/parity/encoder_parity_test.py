"""Embeddings equal those of `transformers`: BERT by each pooling, and a decoder that pools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.parity.executors import EXECUTORS, make_executor, new_batches
from tests.parity.tiny_models import make

LENGTHS = (1, 33, 16, 140)

# Unit vectors of 60 f32 numbers, from sums in another order: errors of some 1e-7 a component.
TOLERANCE = 5e-6

POOLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda hidden: hidden.mean(0),
    "first": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
}


def _prompts(vocab_size: int) -> dict[int, list[int]]:
    rng = np.random.default_rng(5)
    return {i: rng.integers(0, vocab_size, n).tolist() for i, n in enumerate(LENGTHS)}


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("family", ["bert", "qwen2"])
def test_pooled_vectors(family: str, kind: str, pooling: str, tmp_path: Path) -> None:
    reference = make(family, tmp_path)
    prompts = _prompts(reference.config.vocab_size)
    run = make_executor(kind, ModelSource.open(tmp_path), pooling=pooling)
    outputs = run(new_batches(run).step(prompts))
    assert set(outputs) == {"pooled"}
    pooled = outputs["pooled"]
    for row, prompt in zip(pooled, prompts.values(), strict=True):
        with torch.no_grad():
            hidden = reference.base_model(torch.tensor([prompt])).last_hidden_state[0]
        expected = torch.nn.functional.normalize(POOLINGS[pooling](hidden), dim=0)
        np.testing.assert_allclose(row, expected.numpy(), rtol=0, atol=TOLERANCE)


def test_pooling_is_read_from_the_files_of_sentence_transformers(tmp_path: Path) -> None:
    make("bert", tmp_path)
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    flags = {"word_embedding_dimension": 60, "pooling_mode_cls_token": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    built = build(ModelSource.open(tmp_path), BuildOptions(rewrite=False))
    assert built.pooling and not built.chunked_prefill and not built.prefix_caching
    assert built.max_model_len == 99 and built.output_size == 60
    assert " kind=1 normalize=0" in built.program_text
