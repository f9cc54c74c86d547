"""Inputs of the tests of SmolLM2, and the results of `transformers`.

`transformers` needs several processor minutes for it, so its results are in smollm2_reference.json.
After a change of the inputs, of numpy, torch or transformers:

    ./bazelw run //tests/parity:smollm2_reference > reference.json
    mv reference.json tests/parity/smollm2_reference.json
    ./bazelw test //tests/parity:smollm2_reference_test    # computes them again and compares
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pagemill.weights.source import ModelSource

from tests.parity.corpus import corpus_tokens, prompts, windows
from tests.parity.model_path import model_path

# Of two logits, each within the tolerance of smollm2_logits_test.py, either may be the larger.
NEAR_TIE = 4e-3

NUM_PROMPTS, SHORTEST, LONGEST = 50, 8, 2000
NUM_TOKENS = 16
NUM_WINDOWS, WINDOW = 32, 512

_FILE = Path(__file__).with_name("smollm2_reference.json")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Token ids: prompts to continue, and windows to predict."""

    prompts: list[list[int]]
    windows: list[list[int]]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reference:
    """Results for one form of the weights.

    choices: [prompt][step] -> the greedy token, then others whose logit is less than NEAR_TIE lower
    losses: of each window, the mean of -log p of its tokens
    """

    choices: list[list[list[int]]]
    losses: list[float]


def open_gguf() -> ModelSource:
    """SmolLM2 as it was downloaded; skips the test if there is none."""
    return ModelSource.open(model_path("PAGEMILL_TEST_SMOLLM2_GGUF"))


def make_inputs(source: ModelSource) -> Inputs:
    """The same for every form of the weights."""
    tokens = corpus_tokens(source)
    return Inputs(
        prompts(tokens, NUM_PROMPTS, SHORTEST, LONGEST), windows(tokens, NUM_WINDOWS, WINDOW)
    )


def dump(inputs: Inputs, references: dict[str, Reference]) -> str:
    """The contents of smollm2_reference.json, one prompt a line."""
    forms: list[str] = []
    for name, reference in references.items():
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in reference.choices)
        numbers = json.dumps(reference.losses)
        forms.append(f'"{name}": {{"losses": {numbers}, "choices": [\n{rows}\n]}}')
    return f'{{"inputs": "{inputs.sha256}",\n' + ",\n".join(forms) + "}\n"


def load(inputs: Inputs, form: str) -> Reference:
    """The stored results for the weights as "gguf" or "bf16"."""
    stored = json.loads(_FILE.read_text("utf-8"))
    advice = f"{_FILE.name} is of other inputs; {Path(__file__).name} says how to make it again"
    assert stored["inputs"] == inputs.sha256, advice
    return Reference(**stored[form])
