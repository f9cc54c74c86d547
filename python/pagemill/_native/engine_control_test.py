"""What the engine offers of requests under way and of itself, through the extension."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pagemill import _native

VOCAB = 17
PROMPT = list(range(1, 10))  # two full blocks of 4 tokens

MakeEngine = Callable[..., _native.Engine]


def next_token(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    """Logits that prefer the token plus its position."""
    rows = batch["logits_rows"]
    logits = np.zeros((len(rows), VOCAB), dtype=np.float32)
    for at, row in enumerate(rows):
        logits[at, (batch["token_ids"][row] + batch["positions"][row]) % VOCAB] = 9
    return {"logits": logits}


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    engines: list[_native.Engine] = []

    def make(**options: Any) -> _native.Engine:
        limits = _native.RunnerLimits(
            max_num_tokens=32,
            max_num_seqs=4,
            max_num_logits_rows=32,
            max_model_len=64,
            vocab_size=VOCAB,
            num_blocks=20,
            block_size=4,
        )
        runner = _native.ModelRunner(_native.PythonExecutor(next_token), limits)
        chosen = _native.EngineOptions(check_integrity=True, **options)
        engines.append(_native.Engine(runner, chosen))
        return engines[-1]

    yield make
    for engine in engines:
        engine.shutdown()


def submit(engine: _native.Engine, request_id: int, **fields: Any) -> None:
    sampling = _native.SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    engine.submit(request_id, PROMPT, sampling, **fields)


def read(engine: _native.Engine, request_id: int) -> tuple[list[int], _native.RequestOutput]:
    """Tokens until the request or a turn of it ends, and the last output."""
    tokens: list[int] = []
    while True:
        outputs = engine.wait(30)
        assert outputs, "no output came"
        for output in outputs:
            assert output.request_id == request_id
            tokens += output.new_token_ids
            if output.finish_reason is not None or output.turn_finished is not None:
                return tokens, output


def test_a_paused_engine_accepts_and_waits(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert not engine.wait_paused(0.001)
    for mode in ("keep", "wait", "abort"):
        engine.pause(mode)
        assert engine.wait_paused(30)
        assert engine.stats().paused
    submit(engine, 1)
    assert not engine.wait_idle(0.005)
    engine.resume()
    assert len(read(engine, 1)[0]) == 3
    with pytest.raises(_native.StatusError, match="keep, wait, abort"):
        engine.pause("stop")


def test_held_requests_and_turns(make_engine: MakeEngine) -> None:
    engine = make_engine()
    submit(engine, 1, starts_held=True, streaming_input=True)
    engine.extend(1, _native.InputChunk([], part="turn"))
    engine.release(1)
    first, output = read(engine, 1)
    assert (len(first), output.turn_finished, output.finish_reason) == (3, "length", None)
    engine.extend(1, _native.InputChunk([5, 6], part="more"))
    engine.extend(1, _native.InputChunk([7]))
    second, output = read(engine, 1)
    assert (len(second), output.finish_reason) == (3, "length")
    with pytest.raises(_native.StatusError, match="NOT_FOUND"):
        engine.extend(1, _native.InputChunk([5]))
    with pytest.raises(_native.StatusError, match="more, turn, last"):
        _native.InputChunk([5], part="end")  # type: ignore[arg-type]


def test_pins_and_events_are_plain_data(make_engine: MakeEngine) -> None:
    engine = make_engine(max_pinned_blocks=4, max_kv_events=100)
    submit(engine, 1)
    read(engine, 1)
    pin, num_tokens = engine.pin_prefix(PROMPT)
    assert num_tokens == 8
    with pytest.raises(_native.StatusError, match="NOT_FOUND"):
        engine.pin_prefix(PROMPT, cache_salt="another tenant")
    assert engine.unpin_prefix(pin)
    assert not engine.unpin_prefix(pin)
    batch = engine.kv_events()
    (stored, *more) = batch["events"]
    assert (stored["sequence"], stored["type"], stored["block_size"]) == (1, "stored", 4)
    assert stored["token_ids"][:4] == PROMPT[:4]
    assert stored["parent"] == b"" and {len(each) for each in stored["hashes"]} == {16}
    assert (batch["next"], batch["dropped"]) == (2 + len(more), 0)
    assert engine.reset_prefix_cache()
    (cleared,) = engine.kv_events(batch["next"])["events"]
    assert cleared["type"] == "cleared"
    assert json.dumps(cleared, default=bytes.hex)


def test_what_the_runner_cannot_do_is_said(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for refused in (engine.sleep, engine.wake, lambda: engine.update_weights({})):
        with pytest.raises(_native.StatusError, match="--executor native"):
            refused()
    assert not engine.is_sleeping()
    with pytest.raises(_native.StatusError, match="--max-kv-events"):
        engine.kv_events()


def test_ages_of_kv_blocks_are_histograms_of_the_statistics(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_block_age_sample=1.0)
    for request_id in (1, 2):
        submit(engine, request_id)
        read(engine, request_id)
    gaps = engine.stats().kv_block_reuse_gap
    assert len(gaps.counts) == len(gaps.bounds_s) + 1
    assert sum(gaps.counts) == 2, "the two full blocks of the prompt were used again"
    assert 0 < gaps.sum_s < 600
    across = _native.EngineStats.from_wire(engine.stats().to_wire())
    assert across.kv_block_reuse_gap.counts == gaps.counts
    assert across.kv_block_reuse_gap.sum_s == gaps.sum_s
    assert make_engine().stats().kv_block_reuse_gap.counts == []
    with pytest.raises(_native.StatusError, match="kv_block_age_sample is 2"):
        make_engine(kv_block_age_sample=2.0)
