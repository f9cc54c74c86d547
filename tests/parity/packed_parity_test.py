"""Logits of AWQ, GPTQ and pack-quantized checkpoints equal those of `transformers` on the values
that they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pagemill.weights.source import ModelSource

from tests.parity.executors import EXECUTORS, make_executor
from tests.parity.one_request import difference
from tests.parity.packed_checkpoints import Scheme, write_packed

# Of the largest logit. Exact: both sides compute in f32 with the same weights. Rounded: minima of
# q4_1 are rounded to f16, by 1/128 of a step of 4 bits or less.
EXACT, ROUNDED = 1e-4, 5e-3

SCHEMES = {
    "awq": (Scheme("awq"), ROUNDED),
    "awq-rows": (Scheme("awq", group=-1), ROUNDED),
    "awq-middle": (Scheme("awq", group=64, zeros=False), EXACT),
    "gptq": (Scheme("gptq"), ROUNDED),
    "gptq-sym": (Scheme("gptq", group=64, zeros=False), EXACT),
    "gptq-v2": (Scheme("gptq_v2"), ROUNDED),
    "gptq-v2-sym": (Scheme("gptq_v2", zeros=False), EXACT),
    "gptq-8": (Scheme("gptq", bits=8, group=-1, zeros=False), EXACT),
    "gptq-8-zeros": (Scheme("gptq", bits=8), EXACT),
    "gptq-act-order": (Scheme("gptq", zeros=False, act_order=True), EXACT),
    "packed": (Scheme("pack_quantized", zeros=False, scale_dtype=torch.bfloat16), EXACT),
    "packed-zeros": (Scheme("pack_quantized", scale_dtype=torch.bfloat16), ROUNDED),
    "packed-8": (
        Scheme("pack_quantized", 8, -1, zeros=False, scale_dtype=torch.bfloat16),
        EXACT,
    ),
    "packed-act-order": (Scheme("pack_quantized", act_order=True), EXACT),
}


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("name", SCHEMES)
def test_prompt_and_decode(name: str, kind: str, tmp_path: Path) -> None:
    scheme, tolerance = SCHEMES[name]
    reference = write_packed(tmp_path, scheme)
    assert difference(make_executor(kind, ModelSource.open(tmp_path)), reference) <= tolerance
