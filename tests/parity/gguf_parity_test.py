"""Logits from quantized GGUF files equal those of `transformers` on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill.weights.source import ModelSource

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.gguf_files import write_gguf
from tests.parity.one_request import difference
from tests.parity.tiny_models import make

# As in decoder_parity_test.py: both sides take the same rounded weights and compute in f32.
TOLERANCE = 1e-4

# A format for each family; rows that are not a multiple of 32 long make f16 matrices beside them.
FILES = [
    ("llama", "Q4_1"),
    ("llama", "Q5_0"),
    ("qwen2", "Q8_0"),
    ("qwen2", "Q4_0"),
    ("qwen3", "Q4_0"),
    ("qwen3_moe", "Q8_0"),
    ("mixtral", "Q4_1"),
    ("gemma3", "BF16"),
]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize(("family", "matrix_type"), FILES)
def test_prompt_and_decode(family: str, matrix_type: str, kind: str, tmp_path: Path) -> None:
    reference = make(family, tmp_path)
    if family == "gemma3":
        # GGUF has no key for the query scale: it is the head size in all but the 27B model.
        for layer in reference.model.layers:
            layer.self_attn.scaling = reference.config.head_dim**-0.5
    write_gguf(reference, family, tmp_path / "model.gguf", matrix_type)
    source = ModelSource.open(tmp_path / "model.gguf")
    assert difference(make_executor(kind, source), reference) <= TOLERANCE
