"""Embeddings of all-MiniLM-L6-v2 equal those of `transformers` with mean pooling."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.renderer import Renderer
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import AutoModel

from tests.parity.executors import EXECUTORS, make_executor, new_batches
from tests.parity.model_path import model_path

TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Paging a key-value cache lets requests of different lengths share one pool of memory. " * 12,
    "!",
]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_cosine(kind: str) -> None:
    directory = model_path("PAGEMILL_TEST_MINILM_DIR")
    directory = directory if directory.is_dir() else directory.parent
    source = ModelSource.open(directory)
    built = build(source, BuildOptions(rewrite=False))
    assert (built.max_model_len, built.output_size, built.pooling) == (256, 384, True)
    renderer = Renderer.open(source)
    ids = [renderer.encode(text, True) for text in TEXTS]
    run = make_executor(kind, source)
    pooled = run(new_batches(run).step(dict(enumerate(ids))))["pooled"]
    reference = AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    for row, tokens in zip(pooled, ids, strict=True):
        with torch.inference_mode():
            expected = reference(torch.tensor([tokens])).last_hidden_state[0].mean(0).numpy()
        assert abs(np.linalg.norm(row) - 1) < 1e-5
        cosine = float(row @ expected / np.linalg.norm(expected))
        assert cosine > 0.999999  # the required bound is 0.9999; f32 gives 1 - 1e-7
    # Related sentences are close, others are not: the vectors mean something.
    assert pooled[0] @ pooled[1] > 0.7 > 0.3 > pooled[0] @ pooled[2]


def test_tokenizer_of_a_gguf_file() -> None:
    """The vocabulary as llama.cpp's converter writes it gives the ids of the one it is made of."""
    directory = model_path("PAGEMILL_TEST_MINILM_DIR")
    directory = directory if directory.is_dir() else directory.parent
    file = json.loads((directory / "tokenizer.json").read_text())
    ids: dict[str, int] = file["model"]["vocab"]
    control = {token["id"] for token in file["added_tokens"] if token["special"]}
    pieces = [
        piece
        if index in control
        else piece.removeprefix("##")
        if piece.startswith("##")
        else f"\u2581{piece}"
        for index, piece in enumerate(sorted(ids, key=ids.__getitem__))
    ]
    tokenizer = tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "bert",
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [3 if i in control else 1 for i in range(len(pieces))],
            "tokenizer.ggml.unknown_token_id": ids["[UNK]"],
            "tokenizer.ggml.seperator_token_id": ids["[SEP]"],
        }
    )
    renderer = Renderer.open(ModelSource.open(directory))
    for text in (
        *TEXTS,
        "Na\u00efve caf\u00e9 \u4f60\u597d\t\U0001f600 It's 12.5%",
        "unused [MASK]",
    ):
        assert tokenizer.encode(text).ids[:250] == renderer.encode(text, True, True)[:250]
