"""A model in fp8 on the emulated GPU, which rounds activations of few rows beside their products:
the tokens of the CPU, which rounds them, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.parity.scaled_checkpoints import Scheme, write_scaled
from tests.parity.small_engine import engine, generate
from tests.parity.tiny_models import tiny_llama

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

# For products of one row, of tiles of up to 16 and of up to 64, and of more.
PROMPTS = [[9], list(range(3, 14)), list(range(20, 60)), list(range(5, 90))]
TOKENS = 3


def test_tokens_are_those_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))
    sizes = {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4}
    model = tiny_llama(num_hidden_layers=1, **sizes)
    write_scaled(model, tmp_path, Scheme("f8_e4m3", "block", "fp8", (128, 128)))
    options: dict[str, Any] = {"activation_dtype": "auto", "max_model_len": 128}
    tokens: list[list[list[int]]] = []
    for device, dtype in (("cpu", "f32"), ("emulated", "bf16")):
        with engine(tmp_path, device=device, dtype=dtype, **options) as core:
            tokens.append([generate(core, [prompt], TOKENS)[0].tokens for prompt in PROMPTS])
    assert tokens[0] == tokens[1]
