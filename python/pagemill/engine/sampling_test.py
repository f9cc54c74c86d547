"""Defaults and their precedence; the native form of a request's parameters."""

from typing import Any

import pytest

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import (
    _OTHER_NAMES,  # pyright: ignore[reportPrivateUsage]
    RepetitionDetectionParams,
    SamplingDefaults,
    SamplingParams,
)
from pagemill.engine.testing.fake_types import FakeSampling


def test_precedence() -> None:
    defaults = SamplingDefaults.from_generation_config(
        {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "max_new_tokens": 77, "do_sample": False}
    )
    assert defaults.max_tokens == 77
    filled = defaults.fill(SamplingParams(top_k=5, top_p=1.0))
    assert (filled.temperature, filled.top_k, filled.top_p) == (0.6, 5, 1.0)
    assert (filled.min_p, filled.repetition_penalty) == (0.0, 1.0)


def test_zero_is_a_statement() -> None:
    assert SamplingDefaults(temperature=0.6).fill(SamplingParams(temperature=0.0)).greedy


def test_native_form() -> None:
    params = SamplingDefaults().fill(
        SamplingParams(
            n=3,
            temperature=0.5,
            top_k=-1,
            seed=-2,
            logit_bias={3: 1000.0, 4: -0.5},
            logprobs=-1,
            prompt_logprobs=0,
            stop_token_ids=[9],
        )
    )
    children = child_sampling(params, max_tokens=11, eos_token_ids=[1, 2])
    assert [child["seed"] for child in children] == [2**64 - 2, 2**64 - 1, 0]
    first = FakeSampling(**children[0])
    assert first.top_k == 0
    assert first.logit_bias == [(3, 100.0), (4, -0.5)]
    assert (first.logprobs, first.prompt_logprobs) == (-2, 0)
    assert (first.max_tokens, first.eos_token_ids, first.stop_token_ids) == (11, [1, 2], [9])


def test_no_logprobs() -> None:
    params = SamplingDefaults().fill(SamplingParams(seed=0))
    (child,) = child_sampling(params, max_tokens=1, eos_token_ids=[])
    only = FakeSampling(**child)
    assert (only.logprobs, only.prompt_logprobs) == (-1, -1)


def native(params: SamplingParams, defaults: SamplingDefaults | None = None) -> dict[str, Any]:
    filled = (defaults or SamplingDefaults()).fill(params)
    (child,) = child_sampling(filled, max_tokens=1, eos_token_ids=[])
    return child


def test_chosen_tokens_take_the_place_of_the_most_likely() -> None:
    for logprobs in (None, 0, 5, -1):
        child = native(SamplingParams(logprobs=logprobs, logprob_token_ids=[7, 3]))
        assert (child["logprobs"], child["logprob_token_ids"]) == (0, [7, 3])


def test_logprobs_mode_is_the_servers_unless_stated() -> None:
    server = SamplingDefaults(logprobs_mode="processed_logprobs")
    assert native(SamplingParams(), server)["logprobs_mode"] == 2
    assert native(SamplingParams(logprobs_mode="raw_logits"), server)["logprobs_mode"] == 1
    assert "logprobs_mode" not in native(SamplingParams(logprobs_mode="raw_logprobs"), server)
    with pytest.raises(EngineError, match="raw_logprobs, raw_logits"):
        native(SamplingParams(logprobs_mode="logits"))


def test_repetition_detection() -> None:
    repetition = RepetitionDetectionParams(max_pattern_size=20, min_pattern_size=2, min_count=3)
    child = native(SamplingParams(repetition_detection=repetition))
    assert child["repetition_max_pattern"] == 20
    assert child["repetition_min_pattern"] == 2
    assert child["repetition_min_count"] == 3
    off = native(SamplingParams(repetition_detection=RepetitionDetectionParams()))
    assert "repetition_max_pattern" not in off


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"min_pattern_size": 1}, "min_pattern_size is 1"),
        ({"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, "at most"),
        ({"max_pattern_size": 2}, "min_count is 0"),
        ({"max_pattern_size": 2, "min_count": 1}, "min_count is 1"),
    ],
)
def test_repetition_detection_that_does_not_fit_together(
    fields: dict[str, int], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        RepetitionDetectionParams(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tempature": 1}, "no argument `tempature`: did you mean `temperature`"),
        ({"max_tokens": 1, "zzz": 1}, "no argument `zzz`: see pagemill.SamplingParams"),
        ({"sampling_params": SamplingParams()}, "the argument is `sampling`"),
        ({"use_tqdm": False}, "`progress`"),
        ({"guided_json": {}}, "`grammar` says"),
    ],
)
def test_unknown_fields_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        SamplingParams(**fields)


def test_names_of_another_system_are_none_of_ours() -> None:
    assert not _OTHER_NAMES.keys() & set(SamplingParams.__struct_fields__)
    assert SamplingParams(max_tokens=3).max_tokens == 3
    with pytest.raises(TypeError, match="positional"):
        SamplingParams(3)  # pyright: ignore[reportCallIssue]
