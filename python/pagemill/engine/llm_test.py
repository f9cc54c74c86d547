"""The offline interface with the real models."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pagemill
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.engine.progress_bar import ProgressBar
from pagemill.engine.sampling import SamplingParams

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
MINILM = os.environ.get("PAGEMILL_TEST_MINILM_DIR", "")

needs_smollm2 = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
needs_minilm = pytest.mark.skipif(not MINILM, reason="PAGEMILL_TEST_MINILM_DIR is not set")
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with pagemill.LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, max_num_queued_reqs=4) as loaded:
        yield loaded


@needs_smollm2
def test_generate_takes_text_ids_and_lists(llm: LLM) -> None:
    text = "The capital of France is"
    (one,) = llm.generate(text, GREEDY)
    assert "Paris" in one.choices[0].text
    assert one.choices[0].finish_reason == "length"
    (by_ids,) = llm.generate(one.prompt_token_ids, GREEDY)
    assert by_ids.choices == one.choices
    # More than the engine's queue holds; order is the prompts'.
    prompts = [text, one.prompt_token_ids, "Once upon a time"] * 10
    many = llm.generate(prompts, GREEDY)
    assert [o.choices[0].text for o in many[:2]] == [one.choices[0].text] * 2
    assert len(many) == 30
    assert many[2].choices[0].text == many[29].choices[0].text != one.choices[0].text


@needs_smollm2
def test_chat(llm: LLM) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    (one,) = llm.chat(question, temperature=0.0)
    assert "Paris" in one.choices[0].text
    assert one.choices[0].finish_reason == "stop"
    several = llm.chat([question, question], temperature=0.0)
    assert [o.choices[0].text for o in several] == [one.choices[0].text] * 2


@needs_smollm2
def test_streams_are_the_same_texts_in_pieces(llm: LLM) -> None:
    prompt = "The capital of France is"
    pieces = list(llm.stream(prompt, GREEDY))
    assert len(pieces) > 1
    (whole,) = llm.generate(prompt, GREEDY)
    assert "".join(pieces) == whole.choices[0].text
    question = [{"role": "user", "content": "What is the capital of France?"}]
    (answer,) = llm.chat(question, temperature=0.0, stop=("Paris",))
    streamed = "".join(llm.stream_chat(question, temperature=0.0, stop=("Paris",)))
    assert streamed == answer.choices[0].text
    with pytest.raises(EngineError, match="`n` must be 1"):
        llm.stream(prompt, n=2, temperature=1.0)
    left = llm.stream(prompt, temperature=0.0, max_tokens=200)
    next(left)
    left.close()
    (again,) = llm.generate(prompt, GREEDY)
    assert again.choices == whole.choices
    assert llm.stats().num_running == 0


@needs_smollm2
def test_n_stop_and_logprobs(llm: LLM) -> None:
    (out,) = llm.generate("1, 2, 3,", n=3, seed=5, max_tokens=20, stop=("5",), logprobs=2)
    for choice in out.choices:
        assert "5" not in choice.text
        assert choice.logprobs is not None
        assert len(choice.logprobs) == len(choice.token_ids)
        assert (choice.finish_reason, choice.stop_reason) in (("stop", "5"), ("length", None))
    assert any(choice.stop_reason == "5" for choice in out.choices)
    (scored,) = llm.generate("one two three", max_tokens=1, prompt_logprobs=1)
    assert scored.prompt_logprobs is not None
    assert len(scored.prompt_logprobs) == len(scored.prompt_token_ids) - 1


@needs_smollm2
def test_refusals_leave_the_engine_usable(llm: LLM) -> None:
    with pytest.raises(EngineError, match="256"):
        llm.generate(["fine", "word " * 400])
    with pytest.raises(EngineError, match="temperature"):
        llm.generate("x", temperature=-1.0)
    with pytest.raises(TypeError, match="not both"):
        llm.generate("x", GREEDY, max_tokens=3)
    with pytest.raises(EngineError):
        llm.embed("x")
    assert len(llm.generate("Still there?", GREEDY)) == 1


def test_unknown_options_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="max-model-len"):
        LLM("nowhere", max_model_length=5)


@needs_minilm
def test_embed() -> None:
    path = Path(MINILM)
    with LLM(str(path.parent if path.is_file() else path)) as llm:
        texts = ["someone is eating food", "a man eats bread", "the stock market fell today"]
        vectors = llm.embed(texts)
        assert vectors.shape == (3, 384) and vectors.dtype == np.float32
        assert vectors[0] @ vectors[1] > 0.5 > 0.2 > vectors[0] @ vectors[2]
        with pytest.raises(EngineError):
            llm.embed("word " * 1000)


def test_progress_bar_is_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        bar = ProgressBar(2, stream)
        bar.add(tokens=5, finished=True)
        bar.add(tokens=5, finished=True)
        bar.close()
        assert ("2/2" in stream.getvalue()) == drawn
