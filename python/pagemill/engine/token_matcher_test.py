"""Outputs under constraints that are written in Python, with a real model."""

import json
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.structured.grammar import json_schema, regex

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
MAX_DEPTH = 6
PROMPTS = ["(a + (b", "f(x) = g(", "((", "Lisp: (defun square (x)"]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=4) as loaded:
        yield loaded


class Brackets:
    """What a vocabulary does to the depth of open brackets: shared by all matchers."""

    def __init__(self, llm: LLM) -> None:
        size = llm._loaded.core.built.vocab_size
        self.texts = [llm.renderer.token_text(index) for index in range(size)]
        self.ends = np.zeros(size, bool)
        self.ends[list(llm._model.eos_token_ids)] = True
        depths = [np.cumsum([(c == "(") - (c == ")") for c in text] or [0]) for text in self.texts]
        self.lowest = np.array([min(depth.min(), 0) for depth in depths])
        self.highest = np.array([max(depth.max(), 0) for depth in depths])
        self.change = np.array([depth[-1] for depth in depths])
        self.threads: set[int] = set()

    def __call__(self) -> "BracketMatcher":
        return BracketMatcher(self)


class BracketMatcher:
    """Balanced parentheses, nested at most MAX_DEPTH deep."""

    def __init__(self, brackets: Brackets) -> None:
        self._brackets = brackets
        self._depths = [0]
        self._ended = [False]

    def _allowed(self) -> np.ndarray:
        b, depth = self._brackets, self._depths[-1]
        if self._ended[-1]:
            return b.ends
        fits = (depth + b.lowest >= 0) & (depth + b.highest <= MAX_DEPTH) & ~b.ends
        return fits | (b.ends & (depth == 0))

    def fill_mask(self, mask: np.ndarray) -> None:
        self._brackets.threads.add(threading.get_ident())
        bits = np.packbits(self._allowed(), bitorder="little")
        mask.view(np.uint8)[: bits.size] = bits
        mask.view(np.uint8)[bits.size :] = 0

    def accept(self, token_id: int) -> bool:
        if not self._allowed()[token_id]:
            return False
        self._depths.append(self._depths[-1] + int(self._brackets.change[token_id]))
        self._ended.append(bool(self._brackets.ends[token_id]))
        return True

    def rollback(self, num_tokens: int) -> None:
        del self._depths[len(self._depths) - num_tokens :]
        del self._ended[len(self._ended) - num_tokens :]

    def forced(self, most: int) -> list[int]:
        return []


def depths_of(text: str) -> list[int]:
    return np.cumsum([0] + [(c == "(") - (c == ")") for c in text]).tolist()


def test_outputs_are_balanced_as_far_as_they_go(llm: LLM) -> None:
    brackets = Brackets(llm)
    free = llm.generate(PROMPTS, temperature=0.0, max_tokens=40)
    assert any(min(depths_of(out.choices[0].text)) < 0 for out in free)
    for temperature, n in ((0.0, 1), (1.0, 3)):
        outputs = llm.generate(
            PROMPTS, token_matcher=brackets, temperature=temperature, max_tokens=40, n=n, seed=7
        )
        for choice in (choice for output in outputs for choice in output.choices):
            depths = depths_of("".join(brackets.texts[t] for t in choice.token_ids[:-1]))
            assert min(depths) >= 0 and max(depths) <= MAX_DEPTH
            if choice.finish_reason == "stop":
                assert depths[-1] == 0
    # One thread fills them all, and it is not the caller's.
    assert len(brackets.threads) == 1
    assert threading.get_ident() not in brackets.threads


def test_drafts_change_nothing(llm: LLM) -> None:
    brackets = Brackets(llm)
    drafts = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 1}
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, speculative_config=drafts) as drafting:
        for temperature in (0.0, 0.8):
            expected, outputs = (
                one.generate(
                    PROMPTS, token_matcher=brackets, temperature=temperature, max_tokens=40, seed=3
                )
                for one in (llm, drafting)
            )
            assert [o.choices for o in outputs] == [o.choices for o in expected]
        assert drafting._engine.stats().accepted_draft_tokens > 0


def test_what_a_grammar_forces_comes_together(llm: LLM) -> None:
    before = llm._engine.stats().accepted_draft_tokens
    grammar = regex("Colours: (red|blue), and that is all there is to say about it[.!]")
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=1, max_num_logits_rows=1) as stepping:
        expected = stepping.generate(PROMPTS, grammar=grammar, temperature=0.0, max_tokens=40)
        assert stepping._engine.stats().accepted_draft_tokens == 0  # each draft needs a row
    outputs = llm.generate(PROMPTS, grammar=grammar, temperature=0.0, max_tokens=40)
    assert [o.choices for o in outputs] == [o.choices for o in expected]
    assert llm._engine.stats().accepted_draft_tokens >= before + 5 * len(PROMPTS)


def test_a_matcher_that_raises_fails_its_request(llm: LLM) -> None:
    def broken() -> BracketMatcher:
        raise RuntimeError("no such grammar")

    class BrokenMask(BracketMatcher):
        def fill_mask(self, mask: np.ndarray) -> None:
            raise ValueError("the mask has the wrong size")

    with pytest.raises(EngineError, match="no such grammar"):
        llm.generate("x", token_matcher=broken, max_tokens=3)
    with pytest.raises(EngineError, match="the mask has the wrong size"):
        brackets = Brackets(llm)
        llm.generate("x", token_matcher=lambda: BrokenMask(brackets), max_tokens=3)
    assert len(llm.generate("Still there?", max_tokens=3)) == 1


def test_a_grammar(llm: LLM) -> None:
    grammar = json_schema({"type": "object", "properties": {"n": {"enum": [1, 22]}}})
    for output in llm.generate(PROMPTS, grammar=grammar, temperature=0.8, seed=1, max_tokens=60):
        (choice,) = output.choices
        if choice.finish_reason == "stop":
            assert json.loads(choice.text).get("n") in (1, 22, None)
    (answer,) = llm.chat(
        [{"role": "user", "content": "Yes or no?"}], grammar=regex("(yes|no)"), max_tokens=5
    )
    assert answer.choices[0].text in ("yes", "no")
    with pytest.raises(EngineError, match="The grammar is refused: "):
        llm.generate("x", grammar=regex("(a"), max_tokens=3)
