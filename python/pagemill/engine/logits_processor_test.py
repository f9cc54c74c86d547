"""Outputs whose logits are changed in Python, with a real model."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.engine.text_batch import Output

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
PROMPTS = ["Once upon a time", "def square(x):\n    return", "The capital of France is"]
BIASES = {11: 3.5, 28: -20.0, 100: 1.25}


@pytest.fixture(scope="module", params=[None, {"method": "ngram", "num_speculative_tokens": 3}])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    speculation = {} if request.param is None else {"speculative_config": request.param}
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, **speculation) as loaded:
        yield loaded


def biased(prompt: np.ndarray, outputs: np.ndarray, logits: np.ndarray) -> None:
    logits[list(BIASES)] += list(BIASES.values())


def tokens(outputs: list[Output]) -> list[list[int]]:
    return [choice.token_ids for output in outputs for choice in output.choices]


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"temperature": 0.9, "seed": 3, "n": 2, "top_p": 0.9}]
)
def test_equals_biases_of_a_request(llm: LLM, fields: dict[str, Any]) -> None:
    fields = {**fields, "max_tokens": 24, "repetition_penalty": 1.1}
    by_bias = tokens(llm.generate(PROMPTS, logit_bias=BIASES, **fields))
    assert tokens(llm.generate(PROMPTS, logits_processor=biased, **fields)) == by_bias
    assert tokens(llm.generate(PROMPTS, **fields)) != by_bias
    ids = llm.enqueue(PROMPTS, logits_processor=biased, **fields)
    assert tokens(llm.wait_for_completion(ids)) == by_bias


def test_sees_prompts_and_outputs(llm: LLM) -> None:
    def copies(prompt: np.ndarray, outputs: np.ndarray, logits: np.ndarray) -> None:
        assert not prompt.flags.writeable
        assert prompt.dtype == outputs.dtype == np.int32 and logits.dtype == np.float32
        logits[(prompt.tolist() * 3)[outputs.size]] = 1000

    for output in llm.generate(PROMPTS, logits_processor=copies, max_tokens=9, ignore_eos=True):
        prompt = list(output.prompt_token_ids)
        assert output.choices[0].token_ids == (prompt * 3)[:9]


def test_with_a_grammar(llm: LLM) -> None:
    from pagemill.structured.grammar import regex

    outputs = llm.generate(
        PROMPTS, logits_processor=biased, grammar=regex("[a-c]{6}"), max_tokens=12, temperature=0
    )
    assert all(set(output.choices[0].text) <= set("abc") for output in outputs)


@pytest.mark.parametrize(
    ("value", "sentence"), [(np.nan, "gave token 5 a logit that is NaN"), (None, "oh no")]
)
def test_one_that_fails_ends_its_request(llm: LLM, value: float | None, sentence: str) -> None:
    def bad(prompt: np.ndarray, outputs: np.ndarray, logits: np.ndarray) -> None:
        if value is None:
            raise ValueError("oh no")
        logits[5] = value

    with pytest.raises(EngineError, match=sentence):
        llm.generate(PROMPTS, logits_processor=bad, max_tokens=4)
    assert len(llm.generate(PROMPTS, logits_processor=biased, max_tokens=4)) == 3
