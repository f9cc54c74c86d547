"""The executor's default rounding keeps SmolLM2's perplexity within 0.3 % of f32's.

The defaults are a bf16 KV cache, and kernels that round activations if a machine has them: to
integers for block formats, to bf16 for bf16 weights and in attention. int8 activations, and KV
caches in 8 and 4 bits, which are opt-in, have their own bounds.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pagemill.weights.source import ModelSource

from tests.parity.bf16_checkpoint import write_bf16
from tests.parity.executors import make_executor, new_batches
from tests.parity.perplexity import loss, of_executor
from tests.parity.smollm2 import Inputs, load, make_inputs, open_gguf

STRIDE = 4  # between windows, if a quarter of them suffices
DEFAULT_BOUND = 0.003  # relative
# 0.42 % measured over all windows, with a standard error of 0.07 %; over a quarter, twice that.
INT8_BOUND = 0.006
INT8_KV_BOUND = 0.004
FP8_KV_BOUND = 0.03
# 6.0 % measured over a quarter of the windows, with a standard error of 0.7 %.
INT4_KV_BOUND = 0.09
# 0.97 % measured likewise, with a standard error of 0.29 %.
K8V4_KV_BOUND = 0.02


@pytest.fixture(scope="module")
def gguf() -> ModelSource:
    return open_gguf()


@pytest.fixture(scope="module")
def inputs(gguf: ModelSource) -> Inputs:
    return make_inputs(gguf)


def check(
    source: ModelSource,
    texts: list[list[int]],
    expected: list[float],
    kv_cache_dtype: Literal["bf16", "fp8", "int4", "int8", "k8v4"],
    activation_dtype: Literal["f32", "bf16", "int8"],
    bound: float,
) -> None:
    assert 2 < math.exp(np.mean(expected)) < 100  # the model does predict this text
    run = make_executor(
        "native", source, kv_cache_dtype=kv_cache_dtype, activation_dtype=activation_dtype
    )
    logits_of = of_executor(run, new_batches(run))
    differences = [
        loss(logits_of, text) - before for text, before in zip(texts, expected, strict=True)
    ]
    change = math.expm1(np.mean(differences))
    error = np.std(differences, ddof=1) / math.sqrt(len(differences))
    print(f"perplexity {change:+.3%} from f32's, standard error {error:.3%}")
    assert abs(change) <= bound


@pytest.mark.parametrize(
    ("kv_cache_dtype", "activation_dtype", "bound"),
    [
        ("bf16", "f32", DEFAULT_BOUND),
        ("bf16", "bf16", DEFAULT_BOUND),
        ("int8", "bf16", INT8_KV_BOUND),
        ("fp8", "bf16", FP8_KV_BOUND),
        ("int4", "bf16", INT4_KV_BOUND),
        ("k8v4", "bf16", K8V4_KV_BOUND),
    ],
)
def test_within_bound(
    gguf: ModelSource,
    inputs: Inputs,
    kv_cache_dtype: Literal["bf16", "fp8", "int4", "int8", "k8v4"],
    activation_dtype: Literal["f32", "bf16"],
    bound: float,
) -> None:
    texts, expected = inputs.windows[::STRIDE], load(inputs, "gguf").losses[::STRIDE]
    check(gguf, texts, expected, kv_cache_dtype, activation_dtype, bound)


def test_bf16_weights_within_bound(gguf: ModelSource, inputs: Inputs, tmp_path: Path) -> None:
    write_bf16(gguf, tmp_path)
    texts, expected = inputs.windows[::STRIDE], load(inputs, "bf16").losses[::STRIDE]
    check(ModelSource.open(tmp_path), texts, expected, "bf16", "bf16", DEFAULT_BOUND)


def test_int8_activations_within_bound(gguf: ModelSource, inputs: Inputs) -> None:
    expected = load(inputs, "gguf").losses
    check(gguf, inputs.windows, expected, "bf16", "int8", INT8_BOUND)
