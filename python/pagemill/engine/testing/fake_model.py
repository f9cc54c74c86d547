"""The model of the fake engine: the token that follows is a fixed function of the previous token,
the position and the seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pagemill.engine.testing.fake_outputs import FakeLogprobs, FakeOutput
from pagemill.engine.testing.fake_types import FakeRequest, FakeSampling
from pagemill.inputs.task import Task


def next_token(previous: int, position: int, seed: int) -> int:
    """The default model: a printable ASCII code in 97..122, never an end of sequence."""
    return 97 + (previous * 31 + position * 7 + seed) % 26


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """What a test can choose."""

    next_token: Callable[[int, int, int], int] = next_token
    step_s: float = 0.0005  # pause between steps
    steps_per_wakeup: int = 1  # the reader is woken every so many steps, and at ends
    max_running: int = 256
    max_waiting: int = 1024
    retry_after_s: int = 0  # of the refusal of one more
    uses_priority: bool = False
    pooled_size: int = 0  # > 0: a pooling model, whose rows have as many numbers
    task: Task = Task.EMBED  # of a pooling model
    alignment: tuple[int, int] | None = None  # of a model that gives rows of tokens beside text
    fail_at_position: int = -1  # a request that reaches this output position fails
    late_at_position: int = -1  # here the deadline of a request that has one passes
    vocab_size: int = 256
    weight_versions: tuple[tuple[int, str], ...] = ()  # of all requests


def pooled_row(options: FakeOptions, tokens: Sequence[int]) -> np.ndarray:
    """The row of these tokens."""
    size = math.prod(options.alignment) if options.alignment else options.pooled_size
    return np.cos(np.arange(size, dtype=np.float32) + sum(tokens))


class FakeState:
    """A request as it came, and its input and output so far."""

    def __init__(self, request: FakeRequest) -> None:
        self.request = request
        self.prompt = [int(token) for token in request.prompt_token_ids]
        self.media = list(request.media)
        self.held = request.starts_held
        self.input_open = request.streaming_input
        self.output: list[int] = []


def step(options: FakeOptions, request_id: int, state: FakeState) -> FakeOutput:
    """What a step gives the request: a token, a pooled output or a failure."""
    sampling, deadline_us = state.request.sampling, state.request.deadline_us
    if deadline_us is not None:
        has_passed = time.monotonic() * 1e6 >= deadline_us
        if has_passed or len(state.output) == options.late_at_position:
            message = "The deadline of the request has passed."
            return _failed(request_id, "DEADLINE_EXCEEDED", message)
    if sampling is None:
        rows = [pooled_row(options, state.prompt)]
        if options.task.by_token or options.alignment:
            rows = [pooled_row(options, [token]) for token in state.prompt]
        return FakeOutput(request_id, pooled=np.concatenate(rows), finish_reason="stop")
    position = len(state.output)
    if position == options.fail_at_position:
        return _failed(request_id, "INTERNAL", "The runner failed this request.")
    output = FakeOutput(request_id)
    if position == 0 and sampling.prompt_logprobs != -1:
        output.prompt_logprobs = [_logprobs(t, sampling.prompt_logprobs) for t in state.prompt[1:]]
    if sampling.max_tokens > 0:
        _generate(options, state, sampling, output)
    if output.finish_reason is None and len(state.output) >= sampling.max_tokens:
        output.finish_reason = "length"
    if output.finish_reason is not None:
        output.weight_versions = list(options.weight_versions)
        if state.request.return_routed_experts:
            tokens = [*state.prompt, *state.output][:-1]
            output.routed_experts = [layer + token for token in tokens for layer in (0, 100)]
    sends_kv = state.request.kv_transfer_params.get("do_remote_decode") == "true"
    if output.finish_reason is not None and sends_kv:
        output.kv_transfer_params = {"do_remote_prefill": "true", "remote_engine_id": "fake"}
    return output


def _failed(request_id: int, code: str, message: str) -> FakeOutput:
    return FakeOutput(request_id, finish_reason="error", error_code=code, error_message=message)


def _generate(
    options: FakeOptions, state: FakeState, sampling: FakeSampling, output: FakeOutput
) -> None:
    previous = state.output[-1] if state.output else state.prompt[-1]
    token = options.next_token(previous, len(state.output), sampling.seed & 0xFFFF)
    state.output.append(token)
    output.new_token_ids.append(token)
    if sampling.logprobs != -1:
        output.logprobs = [_logprobs(token, sampling.logprobs)]
        output.logprobs[0].top += [(each, -9.0 - each) for each in sampling.logprob_token_ids]
    if len(state.output) > sampling.min_tokens:
        if token in sampling.eos_token_ids and not sampling.ignore_eos:
            output.finish_reason = "stop"
        elif token in sampling.stop_token_ids:
            output.finish_reason, output.stop_token_id = "stop", token
        elif _repeats(state.output, sampling):
            output.finish_reason = "repetition"


def _repeats(output: Sequence[int], sampling: FakeSampling) -> bool:
    """Whether the output ends with a pattern that stands there `repetition_min_count` times."""
    for size in range(1, sampling.repetition_max_pattern + 1):
        tail = output[-size * sampling.repetition_min_count :]
        if len(tail) == size * sampling.repetition_min_count and tail[size:] == tail[:-size]:
            return True
    return False


def _logprobs(token: int, count: int) -> FakeLogprobs:
    top = [((token + i) % 256, -0.5 - i) for i in range(max(count, 0))]
    return FakeLogprobs(token_id=token, logprob=-0.5, rank=1, top=top)
