"""Defaults and their precedence; the native form of a request's parameters."""

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.sampling import SamplingDefaults, SamplingParams
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
