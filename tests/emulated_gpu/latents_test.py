"""Latent attention over a cache in fp8 on the emulated GPU: the tokens of the CPU, for prompts in
chunks and with what is found in the prefix cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.families.families import make
from tests.parity.small_engine import engine, generate, random_prompt

PLUGIN = os.environ.get("PAGEMILL_TEST_EMULATED_GPU", "")
pytestmark = pytest.mark.skipif(not PLUGIN, reason="PAGEMILL_TEST_EMULATED_GPU names no plugin")

PROMPT, TOKENS = random_prompt(1, 50, 190), 3
# Sizes that tensor cores take, in bf16.
SIZES = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "num_hidden_layers": 2}


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v32"])
def test_tokens_are_those_of_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DEVICE_PLUGINS", str(Path(PLUGIN).resolve()))
    make(name, tmp_path, changes=SIZES)
    options: dict[str, Any] = {"kv_cache_dtype": "fp8", "max_model_len": 64}
    tokens: dict[tuple[str, str], list[list[int]]] = {}
    for device, dtype in (("cpu", "f32"), ("emulated", "f32"), ("emulated", "bf16")):
        with engine(tmp_path, device=device, dtype=dtype, **options) as core:
            (first,) = generate(core, [PROMPT], TOKENS)
            again, _ = generate(core, [PROMPT, PROMPT[7:30]], TOKENS)
        assert first.cached == 0
        assert again.cached >= 32  # index keys are smaller, so their blocks have more tokens
        tokens[device, dtype] = [first.tokens, again.tokens]
    assert tokens["cpu", "f32"] == tokens["emulated", "f32"]
    assert tokens["emulated", "bf16"][0] == tokens["emulated", "bf16"][1]
