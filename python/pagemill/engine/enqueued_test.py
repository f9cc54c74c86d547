"""Requests of an `LLM` that run while it does other things: `enqueue`, pauses, resets, beams."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from pagemill.engine.enqueued import Enqueued
from pagemill.engine.llm import LLM
from pagemill.engine.offline_batch import OfflineQueue
from pagemill.engine.offline_beams import BeamSearchParams
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.text_batch import Output
from pagemill.observe.readings import Counter, Histogram
from pagemill.structured import grammar as grammars

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
pytestmark = pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
PROMPTS = ["The capital of France is", "One, two, three,", "Once upon a time"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
LONG = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with make() as loaded:
        yield loaded


def make(**options: Any) -> LLM:
    return LLM(
        SMOLLM2,
        max_model_len=256,
        max_num_seqs=4,
        max_num_queued_reqs=4,
        kv_cache_memory_bytes=64 << 20,
        **options,
    )


def texts(outputs: list[Output]) -> list[str]:
    return [output.choices[0].text for output in outputs]


def test_outputs_come_in_order_and_once(llm: LLM) -> None:
    expected = texts(llm.generate(PROMPTS, GREEDY))
    ids = llm.enqueue(PROMPTS, GREEDY)
    more = llm.enqueue(PROMPTS * 4, GREEDY)  # more than the engine's queue holds
    assert len({*ids, *more}) == 15
    assert texts(llm.generate(PROMPTS[1], GREEDY)) == [expected[1]]
    assert texts(llm.wait_for_completion([ids[2], ids[0]])) == [expected[2], expected[0]]
    with pytest.raises(EngineError, match=f"request {ids[0]} "):
        llm.wait_for_completion([ids[0]])
    assert texts(llm.wait_for_completion()) == [expected[1], *expected * 4]
    assert llm.wait_for_completion() == []


def test_a_stream_goes_on_after_other_requests(llm: LLM) -> None:
    (whole,) = llm.generate(PROMPTS[0], GREEDY)
    pieces = llm.stream(PROMPTS[0], GREEDY)
    first = next(pieces)
    llm.generate(PROMPTS, GREEDY)
    assert first + "".join(pieces) == whole.choices[0].text


def test_a_stop_string_ends_an_enqueued_request(llm: LLM) -> None:
    llm.enqueue(PROMPTS[0], temperature=0.0, max_tokens=200, stop=("Paris",))
    ((choice,),) = (output.choices for output in llm.wait_for_completion())
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "Paris")
    assert "Paris" not in choice.text


def test_refusals_and_failures_cost_no_other_output(llm: LLM) -> None:
    with pytest.raises(EngineError, match="256"):
        llm.enqueue([PROMPTS[0], "word " * 400])
    with pytest.raises(EngineError, match="temperature"):
        llm.enqueue(PROMPTS[0], temperature=-1.0)
    assert llm.wait_for_completion() == []
    running = llm.enqueue(PROMPTS * 2, LONG)  # the others wait, and are refused later
    (late,) = llm.enqueue(PROMPTS[0], temperature=-1.0)
    with pytest.raises(EngineError, match=f"request {late}: .*temperature"):
        llm.wait_for_completion()
    outputs = llm.wait_for_completion()
    assert [len(output.choices[0].token_ids) for output in outputs] == [100] * len(running)


def test_what_is_held_has_a_bound() -> None:
    class Batch:
        num_choices = 3

    queue: OfflineQueue = None  # type: ignore[assignment]
    with pytest.raises(EngineError, match="at most 5"):
        Enqueued(queue, max_choices=5).submit([Batch(), Batch()])  # type: ignore[list-item]


def test_closing_keeps_what_has_ended_and_says_what_has_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with make() as llm:
        (ended,) = llm.enqueue(PROMPTS[0], GREEDY)
        llm.generate(PROMPTS[0], GREEDY)
        (unfinished,) = llm.enqueue(PROMPTS[0], LONG)
        with caplog.at_level(logging.WARNING, logger="pagemill.engine"):
            llm.close()
    assert "had not ended: 1" in caplog.text
    assert "Paris" in texts(llm.wait_for_completion([ended]))[0]
    with pytest.raises(EngineError, match=f"request {unfinished}: the model was closed"):
        llm.wait_for_completion()


def test_a_pause_that_keeps_requests(llm: LLM) -> None:
    (expected,) = llm.generate(PROMPTS[0], LONG)
    llm.enqueue(PROMPTS[0], LONG)
    assert not llm.is_paused
    llm.pause("keep")
    assert llm.is_paused
    llm.enqueue(PROMPTS[0], LONG)
    with pytest.raises(EngineError, match=r"resume\(\)"):
        llm.wait_for_completion()
    llm.resume()
    assert not llm.is_paused
    assert texts(llm.wait_for_completion()) == texts([expected]) * 2


def test_pauses_that_abort_requests_or_wait_for_them(llm: LLM) -> None:
    llm.enqueue(PROMPTS[0], LONG)
    llm.pause()
    (aborted,) = llm.wait_for_completion()
    assert aborted.choices[0].finish_reason == "abort"
    llm.resume()
    assert llm.generate(PROMPTS[0] * 8, GREEDY)[0].num_cached_tokens == 0  # it was cleared
    llm.enqueue(PROMPTS[0], LONG)
    while not llm.stats().num_running:
        pass
    with pytest.raises(EngineError, match="not complete after 0 s"):
        llm.pause("wait", timeout_s=0.0)
    llm.pause("wait")
    (finished,) = llm.wait_for_completion()
    assert len(finished.choices[0].token_ids) == 100
    llm.resume()
    with pytest.raises(EngineError, match="keep, wait, abort"):
        llm.pause("stop")  # type: ignore[arg-type]


def test_the_prefix_cache_is_reset_while_requests_run(llm: LLM) -> None:
    prompt = PROMPTS[0] * 8
    (expected,) = llm.generate(prompt, max_tokens=100, temperature=0.0, ignore_eos=True)
    llm.enqueue(prompt, max_tokens=100, temperature=0.0, ignore_eos=True)
    while not llm.stats().num_running:
        pass
    assert not llm.reset_prefix_cache()
    assert llm.reset_prefix_cache(reset_running_requests=True)
    assert texts(llm.wait_for_completion()) == texts([expected])
    assert llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0


def test_metrics_of_requests_and_engine() -> None:
    with make() as llm:
        llm.generate(PROMPTS[0], GREEDY)
        llm.enqueue(PROMPTS[0], n=2, max_tokens=8, ignore_eos=True)
        llm.wait_for_completion()
        next(llm.stream(PROMPTS[1], LONG))
        found = {
            (each.name, each.labels.get("finished_reason")): each for each in llm.get_metrics()
        }
        num_prompt_tokens = len(llm.renderer.encode(PROMPTS[0]))

    def histogram(name: str) -> tuple[int, float]:
        reading = found[f"pagemill:{name}", None]
        assert isinstance(reading, Histogram)
        return reading.count, reading.sum

    def counter(name: str, reason: str | None = None) -> float:
        reading = found[f"pagemill:{name}", reason]
        assert isinstance(reading, Counter)
        return reading.value

    assert histogram("request_generation_tokens") == (3, 24)
    assert histogram("request_max_num_generation_tokens") == (2, 16)
    assert histogram("request_prompt_tokens")[0] == 3
    assert histogram("request_prefill_kv_computed_tokens")[1] <= 2 * num_prompt_tokens
    assert histogram("inter_token_latency_seconds")[0] >= 21
    assert ("pagemill:kv_block_lifetime_seconds", None) not in found
    assert histogram("time_to_first_token_seconds")[0] == 4
    count, seconds = histogram("e2e_request_latency_seconds")
    assert count == 3 and seconds > 0
    assert histogram("request_inference_time_seconds")[0] == 3
    assert counter("request_success", "length") == 3
    assert counter("request_success", "abort") == 1
    assert counter("generation_tokens") >= 24


def test_ages_of_kv_blocks_are_among_the_metrics_on_request() -> None:
    with make(kv_cache_metrics=True, kv_cache_metrics_sample=1.0) as llm:
        for _ in range(2):
            llm.generate(PROMPTS[0] * 8, GREEDY)
        found = {each.name: each for each in llm.get_metrics()}
    gaps, lifetimes = (
        found[f"pagemill:kv_block_{name}_seconds"] for name in ("reuse_gap", "lifetime")
    )
    assert isinstance(gaps, Histogram)
    assert isinstance(lifetimes, Histogram)
    assert gaps.count > 0
    assert lifetimes.count == 0, "nothing had to be evicted"


def test_beam_search(llm: LLM) -> None:
    llm.enqueue(PROMPTS[0], GREEDY)
    greedy = texts(llm.generate(PROMPTS, max_tokens=6, temperature=0.0))
    one = BeamSearchParams(beam_width=1, max_tokens=6)
    assert texts(llm.beam_search(PROMPTS, one)) == greedy
    wide = llm.beam_search(PROMPTS, BeamSearchParams(beam_width=3, max_tokens=6))
    assert "Paris" in texts(llm.wait_for_completion())[0]
    for output in wide:
        means: list[float] = []
        for choice in output.choices:
            assert choice.logprobs is not None and choice.finish_reason in ("stop", "length")
            assert [each.token_id for each in choice.logprobs] == choice.token_ids
            means.append(sum(each.logprob for each in choice.logprobs) / len(choice.token_ids))
        assert means == sorted(means, reverse=True)
        assert len({tuple(choice.token_ids) for choice in output.choices}) == 3
    wanted = grammars.choice([" red", " green"])
    (output,) = llm.beam_search("The sky is", BeamSearchParams(beam_width=2), grammar=wanted)
    assert {choice.text for choice in output.choices} <= {" red", " green"}
    assert all(choice.finish_reason == "stop" for choice in output.choices)
    for width in (0, 10**6):
        with pytest.raises(EngineError, match="beam_width"):
            llm.beam_search(PROMPTS, BeamSearchParams(beam_width=width))
    with pytest.raises(EngineError, match="256"):
        llm.beam_search("word " * 400, one)
