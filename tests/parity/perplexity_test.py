"""What rounds within the executor leaves SmolLM2's perplexity within 0.3 % of the f32 reference's.

That is a bf16 KV cache, and kernels that quantize activations where a machine has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pagemill.weights.source import ModelSource

from tests.parity.corpus import corpus_tokens
from tests.parity.executors import make_executor, new_batches
from tests.parity.perplexity import of_executor, of_reference, perplexity, windows
from tests.parity.real_models import gguf_reference, model_path

NUM_WINDOWS, WINDOW = 32, 512  # int8 activations: the standard error of the shift is 0.07 %
RELATIVE_BOUND = 0.003  # the project's own: docs/architecture.md


@pytest.fixture(scope="module")
def path() -> Path:
    return model_path("PAGEMILL_TEST_SMOLLM2_GGUF")


@pytest.fixture(scope="module")
def expected(path: Path) -> float:
    texts = windows(corpus_tokens(ModelSource.open(path)), NUM_WINDOWS, WINDOW)
    return perplexity(of_reference(gguf_reference(path)), texts)


@pytest.mark.parametrize(
    ("kv_cache_dtype", "activation_dtype"), [("bf16", "f32"), ("bf16", "bf16"), ("bf16", "int8")]
)
def test_within_bound(
    path: Path,
    expected: float,
    kv_cache_dtype: Literal["bf16", "f32"],
    activation_dtype: Literal["f32", "bf16", "int8"],
) -> None:
    source = ModelSource.open(path)
    texts = windows(corpus_tokens(source), NUM_WINDOWS, WINDOW)
    run = make_executor(
        "native",
        source,
        kv_cache_dtype=kv_cache_dtype,
        activation_dtype=activation_dtype,
    )
    actual = perplexity(of_executor(run, new_batches()), texts)
    assert 2 < expected < 100  # the model does predict this text
    print(f"perplexity {actual:.5f}, f32 reference {expected:.5f}, {actual / expected - 1:+.3%}")
    assert actual == pytest.approx(expected, rel=RELATIVE_BOUND)
