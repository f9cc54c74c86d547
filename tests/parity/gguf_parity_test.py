"""Logits from quantized GGUF files equal those of `transformers` on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource

from tests.families.divided import check_ranks
from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.gguf_files import write_gguf
from tests.parity.one_request import OneRequest, difference
from tests.parity.tiny_models import make, tiny_llama

# As in tests/families: both sides take the same rounded weights and compute in f32.
TOLERANCE = 1e-4

# Formats that the native executor converts, with the squared errors that this adds to weights of
# mean square 1 (docs/quantization.md); the torch executor has none. Errors of the seven matrices
# of a layer are independent, and the largest of all logits is six deviations of one at most.
CONVERTED = {
    "IQ1_M": 0.0,
    "IQ1_S": 5.1e-4,
    "IQ2_S": 8e-5,
    "IQ2_XS": 8e-5,
    "IQ2_XXS": 4.5e-4,
    "IQ3_S": 1e-7,
    "IQ3_XXS": 2.4e-4,
    "IQ4_NL": 0.0,
    "IQ4_XS": 2e-8,
    "MXFP4": 0.0,
    "Q2_K": 2.8e-4,
    "Q3_K": 0.0,
    "Q5_1": 2.9e-5,
    "TQ1_0": 0.0,
    "TQ2_0": 0.0,
}

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


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("matrix_type", CONVERTED)
def test_formats_that_are_converted(matrix_type: str, kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    reference = tiny_llama(**sizes, **heads, num_hidden_layers=1)
    write_gguf(reference, "llama", tmp_path / "model.gguf", matrix_type)
    source = ModelSource.open(tmp_path / "model.gguf")
    assert source.tensor("model.layers.0.mlp.down_proj.weight").dtype == matrix_type.lower()
    tolerance = TOLERANCE + (6 * CONVERTED[matrix_type] ** 0.5 if kind == "native" else 0)
    assert difference(make_executor(kind, source), reference) <= tolerance


def test_experts_of_two_blocks_on_three_ranks(tmp_path: Path) -> None:
    """Ranks have 4, 4 and 5 of 13 experts; of the 64 features of each, one would have none."""
    reference = make("qwen3_moe", tmp_path)
    write_gguf(reference, "qwen3_moe", tmp_path / "model.gguf", "Q8_0")
    source, request = ModelSource.open(tmp_path / "model.gguf"), OneRequest(reference)
    with pytest.raises(ValueError, match="64 in units of 32 cannot be divided among 3 ranks"):
        build(source, BuildOptions(shard=Shard(0, 3)))
    check_ranks(
        source,
        BuildOptions(),
        request.steps,
        lambda logits: request.difference(logits) / TOLERANCE,
        count=3,
        partly=True,  # 4 heads do not divide
        whole_experts=True,
    )
