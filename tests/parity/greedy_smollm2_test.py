"""Greedy tokens of SmolLM2, as GGUF and as bf16 safetensors, equal those of `transformers`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pagemill.weights.source import ModelSource

from tests.parity.bf16_checkpoint import write_bf16
from tests.parity.executors import make_executor, new_batches
from tests.parity.greedy import generate
from tests.parity.smollm2 import load, make_inputs, open_gguf

NUM_BLOCKS = 1400

# Every third prompt, from the longest down. `--test_env=PAGEMILL_TEST_STRIDE=1` takes all.
STRIDE = int(os.environ.get("PAGEMILL_TEST_STRIDE", "3"))


def wrong_tokens(choices: list[list[int]], output: list[int]) -> list[str]:
    """The tokens of `output` that the reference would not have chosen, each as a line of text."""
    return [
        f"token {i} is {token}, not in {right}"
        for i, (token, right) in enumerate(zip(output, choices, strict=True))
        if token not in right
    ]


@pytest.mark.parametrize("form", ["gguf", "bf16"])
def test_tokens(form: str, tmp_path: Path) -> None:
    source = open_gguf()
    inputs = make_inputs(source)
    expected = load(inputs, form).choices[::-STRIDE]
    prompts = inputs.prompts[::-STRIDE]
    if form == "bf16":
        write_bf16(source, tmp_path)
        source = ModelSource.open(tmp_path)
    run = make_executor("native", source, num_blocks=NUM_BLOCKS)
    context = [[step[0] for step in choices] for choices in expected]
    outputs = generate(run, new_batches(run, NUM_BLOCKS), prompts, len(context[0]), context)
    wrong = [
        f"prompt of {len(prompt)}: {line}"
        for prompt, choices, output in zip(prompts, expected, outputs, strict=True)
        for line in wrong_tokens(choices, output)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_token_is_found() -> None:
    assert wrong_tokens([[5, 6], [7]], [6, 7]) == []
    assert wrong_tokens([[5, 6], [7]], [6, 5]) == ["token 1 is 5, not in [7]"]
