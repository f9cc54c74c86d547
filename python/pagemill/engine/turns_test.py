"""Requests whose input comes in parts and turns, with a real model."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence

import pytest

from pagemill import StreamingInput
from pagemill.engine.llm import LLM
from pagemill.engine.offline_prompts import Text
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.text_batch import Output
from pagemill.structured.grammar import regex

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
PARTS = (
    StreamingInput("The capital of", ends_turn=False),
    StreamingInput(" France is", ends_turn=False),
    ", as all know,",
    " and that of Italy is",
)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(SMOLLM2, max_model_len=256, max_num_seqs=4, max_num_queued_reqs=4) as loaded:
        yield loaded


def text_of(output: Output) -> str:
    return output.choices[0].text


async def coming(inputs: Sequence[Text | StreamingInput]) -> AsyncGenerator[Text | StreamingInput]:
    for each in inputs:
        await asyncio.sleep(0.001)
        yield each


async def gathered(turns: AsyncGenerator[Output]) -> list[Output]:
    return [output async for output in turns]


def check_turns(llm: LLM, outputs: Sequence[Output]) -> None:
    """Each is what the model generates after all that came before."""
    assert len(outputs) == 2
    context = llm.renderer.encode("The capital of") if outputs else []
    rest = [llm.renderer.encode(text, False) for text in (" France is", ", as all know,")]
    context += [token for part in rest for token in part]
    for output, following in zip(outputs, (" and that of Italy is", ""), strict=True):
        assert output.prompt_token_ids == context
        (whole,) = llm.generate([context], GREEDY)
        assert output.choices == whole.choices
        context = context + output.choices[0].token_ids
        context += llm.renderer.encode(following, False) if following else []


def test_turns_continue_what_came_before(llm: LLM) -> None:
    check_turns(llm, list(llm.generate_turns(PARTS, GREEDY)))
    assert llm.stats().num_running == 0


def test_turns_on_an_event_loop(llm: LLM) -> None:
    async def several() -> list[list[Output]]:
        return await asyncio.gather(
            *(gathered(llm.generate_turns_async(coming(PARTS), GREEDY)) for _ in range(3))
        )

    for outputs in asyncio.run(several()):
        check_turns(llm, outputs)


def test_inputs_are_taken_one_after_the_other(llm: LLM) -> None:
    heard: list[str] = []
    asked: list[int] = []

    def inputs() -> Generator[Text | StreamingInput]:
        for text in ("One, two,", " three,", " four,"):
            asked.append(len(heard))
            yield text

    for output in llm.generate_turns(inputs(), GREEDY):
        heard.append(text_of(output))
        # Others run between two turns.
        assert len(llm.generate("Once", GREEDY)[0].choices[0].token_ids) == 6
    assert asked == [0, 1, 2] and len(heard) == 3
    # What is left without an end of its turn is a turn, too.
    ends = [StreamingInput("One, two,", ends_turn=False)]
    assert [text_of(output) for output in llm.generate_turns(ends, GREEDY)] == heard[:1]
    assert asyncio.run(gathered(llm.generate_turns_async(coming(ends), GREEDY)))
    assert list(llm.generate_turns((), GREEDY)) == []


def test_a_grammar_is_of_each_turn(llm: LLM) -> None:
    digits = regex("[0-9]{3}")
    inputs = ["Pick a number: ", " Another one: "]
    outputs = list(llm.generate_turns(inputs, grammar=digits, temperature=1.0, seed=3))
    outputs += asyncio.run(
        gathered(llm.generate_turns_async(coming(inputs), grammar=digits, temperature=1.0))
    )
    assert len(outputs) == 4
    assert all(re.fullmatch("[0-9]{3}", text_of(output)) for output in outputs)
    assert all(output.choices[0].finish_reason == "stop" for output in outputs)


def test_a_full_context_ends_the_turns(llm: LLM) -> None:
    def endless() -> Generator[list[int]]:
        while True:
            yield [100] * 122

    for outputs in (
        list(llm.generate_turns(endless(), GREEDY)),
        asyncio.run(gathered(llm.generate_turns_async(coming([[100] * 122] * 9), GREEDY))),
    ):
        assert [len(output.prompt_token_ids) for output in outputs] == [122, 250]
        assert [len(output.choices[0].token_ids) for output in outputs] == [6, 6]
    turns = llm.generate_turns([[100] * 122, [100] * 130], GREEDY)
    next(turns)
    with pytest.raises(EngineError, match="maximum context length is 256"):
        next(turns)


def test_leaving_ends_the_request(llm: LLM) -> None:
    turns = llm.generate_turns(PARTS, GREEDY)
    next(turns)
    turns.close()
    later = llm.generate_turns_async(coming(PARTS), GREEDY)

    async def first_only() -> None:
        await anext(later)
        await later.aclose()

    asyncio.run(first_only())
    assert len(llm.generate("Once", GREEDY)) == 1
    assert llm.stats().num_running == 0 and llm.stats().kv_blocks_used == 0


def test_refusals(llm: LLM) -> None:
    with pytest.raises(EngineError, match="use `stop_token_ids`"):
        llm.generate_turns(["x"], stop=("x",))
    with pytest.raises(EngineError, match="`n` must be 1"):
        llm.generate_turns(["x"], n=2)
    for inputs, sentence in (
        ([[]], "`inputs` is empty"),
        (["x", [10**6]], "token id 1000000"),
        (["x", " word" * 300], "256"),
    ):
        with pytest.raises(EngineError, match=sentence):
            list(llm.generate_turns(inputs, GREEDY))
        with pytest.raises(EngineError, match=sentence):
            asyncio.run(gathered(llm.generate_turns_async(coming(inputs), GREEDY)))
    with pytest.raises(EngineError, match="plugin 'none'"):
        asyncio.run(gathered(llm.generate_turns_async(coming(["x"]), extra_args={"none": 1})))
    assert len(llm.generate("Still there?", GREEDY)) == 1
