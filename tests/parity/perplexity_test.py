"""What rounds within the executor leaves SmolLM2's perplexity within 0.3 % of the f32 reference's.

That is a bf16 KV cache, and kernels that quantize activations where a machine has them.
"""

from __future__ import annotations

import pytest
from pagemill.weights.source import ModelSource

from tests.parity.corpus import corpus_tokens
from tests.parity.executors import make_executor, new_batches
from tests.parity.perplexity import of_executor, of_reference, perplexity, windows
from tests.parity.real_models import gguf_reference, model_path

NUM_WINDOWS, WINDOW = 8, 512
RELATIVE_BOUND = 0.003  # the project's own: docs/architecture.md


def test_bf16_cache() -> None:
    path = model_path("PAGEMILL_TEST_SMOLLM2_GGUF")
    source = ModelSource.open(path)
    texts = windows(corpus_tokens(source), NUM_WINDOWS, WINDOW)
    run = make_executor("native", source, kv_cache_dtype="bf16")
    actual = perplexity(of_executor(run, new_batches()), texts)
    expected = perplexity(of_reference(gguf_reference(path)), texts)
    assert 2 < expected < 100  # the model does predict this text
    assert actual == pytest.approx(expected, rel=RELATIVE_BOUND)
