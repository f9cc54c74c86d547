"""A stand-in for the native engine, for tests of everything above it.

It has the methods of `_native.Engine`, a thread of its own and a readable descriptor, and no model:
the token that follows is a fixed function of the previous token, the position and the seed. Tests
script it through `FakeOptions`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np


class FakeStatusError(Exception):
    """What the extension calls StatusError."""

    def __init__(self, code: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class FakeSampling(types.SimpleNamespace):
    """Any fields of the native SamplingParams; defaults of those that the fake engine reads."""

    temperature: float = 1.0
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    eos_token_ids: Sequence[int] = ()
    stop_token_ids: Sequence[int] = ()
    logprobs: int = -1
    prompt_logprobs: int = -1


@dataclass(slots=True)
class FakeLogprobs:
    """The fields of the native TokenLogprobs."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


@dataclass(slots=True)
class FakeOutput:
    """The fields of the native RequestOutput."""

    request_id: int
    new_token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[FakeLogprobs] | None = None
    prompt_logprobs: list[FakeLogprobs] | None = None
    finish_reason: str | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    pooled: np.ndarray | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_retry_after_s: int = 0
    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(slots=True)
class FakeStats:
    """The statistics of the native EngineStats that the fake engine keeps."""

    fields: ClassVar[Sequence[tuple[str, str, str, str]]] = (
        ("num_running", "gauge", "num_requests_running", "requests that hold a slot"),
        ("num_waiting", "gauge", "num_requests_waiting", "requests without a slot"),
        ("prompt_tokens", "counter", "prompt_tokens", "prompt tokens of requests that started"),
        ("generation_tokens", "counter", "generation_tokens", "tokens generated"),
    )

    num_running: int = 0
    num_waiting: int = 0
    kv_blocks_total: int = 1000
    kv_blocks_used: int = 0
    draining: bool = False
    num_steps: int = 0
    prefix_cache_query_tokens: int = 0
    prefix_cache_hit_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_submitted: int = 0
    num_refused: int = 0
    finished_stop: int = 0
    finished_length: int = 0
    finished_abort: int = 0
    finished_error: int = 0
    progress_age_s: float = 0.0


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
    pooled_size: int = 0  # > 0: a pooling model
    fail_at_position: int = -1  # a request that reaches this output position fails
    vocab_size: int = 256


@dataclass(slots=True)
class _Request:
    prompt: list[int]
    sampling: FakeSampling | None
    output: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class Submitted:
    """What came with a request beside its prompt and its sampling."""

    priority: int
    cache_salt: str
    tenant: str


class FakeEngine:
    """See the module. Thread-safe like the native engine."""

    def __init__(self, options: FakeOptions | None = None) -> None:
        self._options = options or FakeOptions()
        self._lock = threading.Condition()
        self._requests: dict[int, _Request] = {}
        self._outputs: dict[int, FakeOutput] = {}
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._stats = FakeStats()
        self._stopping = False
        self._notified = False
        self._paused = False
        self.submitted: list[Submitted] = []
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    @property
    def paused(self) -> bool:
        """Whether no step runs."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        with self._lock:
            self._paused = paused
            self._lock.notify_all()

    def submit(
        self,
        request_id: int,
        prompt_token_ids: Sequence[int] | np.ndarray,
        sampling: object | None,
        *,
        priority: int = 0,
        cache_salt: str = "",
        skip_reading_prefix_cache: bool = False,
        tenant: str = "",
        new_token_matcher: object | None = None,
        media: Sequence[tuple[str, int, int]] = (),
        media_features: Sequence[np.ndarray] = (),
    ) -> None:
        """Accepts a request. Raises FakeStatusError for a refusal."""
        del skip_reading_prefix_cache, new_token_matcher, media, media_features
        assert sampling is None or isinstance(sampling, FakeSampling)
        with self._lock:
            if self._stats.draining or self._stopping:
                raise FakeStatusError("UNAVAILABLE", "The engine is draining.")
            if len(self._requests) >= self._options.max_running + self._options.max_waiting:
                self._stats.num_refused += 1
                raise FakeStatusError(
                    "RESOURCE_EXHAUSTED",
                    "Too many requests are waiting.",
                    self._options.retry_after_s,
                )
            if priority != 0 and not self._options.uses_priority:
                raise FakeStatusError(
                    "INVALID_ARGUMENT", f"priority is {priority}, but nothing uses it."
                )
            if sampling is not None and not 0 <= sampling.temperature <= 100:
                raise FakeStatusError(
                    "INVALID_ARGUMENT", f"temperature must be >= 0, got {sampling.temperature}."
                )
            if (sampling is None) != (self._options.pooled_size > 0):
                raise FakeStatusError("INVALID_ARGUMENT", "The wrong kind of request.")
            self._requests[request_id] = _Request([int(t) for t in prompt_token_ids], sampling)
            self.submitted.append(Submitted(priority, cache_salt, tenant))
            self._stats.num_submitted += 1
            self._stats.prompt_tokens += len(prompt_token_ids)
            self._lock.notify_all()

    def abort(self, request_id: int) -> None:
        """Ends a request; unknown ids are ignored."""
        with self._lock:
            if self._requests.pop(request_id, None) is not None:
                self._stats.finished_abort += 1
                self._emit(FakeOutput(request_id, finish_reason="abort"))

    def poll(self) -> list[FakeOutput]:
        """All waiting outputs."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_fd, 4096)
            outputs = list(self._outputs.values())
            self._outputs.clear()
            self._notified = False
            return outputs

    def wait(self, timeout_s: float) -> list[FakeOutput]:
        """Like poll, after waiting for the first output."""
        with self._lock:
            self._lock.wait_for(lambda: self._outputs or self._stopping, timeout_s)
        return self.poll()

    def output_fd(self) -> int:
        """Readable while outputs wait."""
        return self._read_fd

    def stats(self) -> FakeStats:
        """A snapshot."""
        with self._lock:
            self._stats.num_running = min(len(self._requests), self._options.max_running)
            self._stats.num_waiting = len(self._requests) - self._stats.num_running
            self._stats.kv_blocks_used = self._stats.num_running
            return self._stats

    def drain(self) -> None:
        """Refuses new requests."""
        with self._lock:
            self._stats.draining = True

    def shutdown(self) -> None:
        """Aborts all and joins the thread."""
        with self._lock:
            for request_id in list(self._requests):
                self.abort(request_id)
            self._stopping = True
            self._lock.notify_all()
        self._thread.join()

    def reset_prefix_cache(self) -> bool:
        """Nothing is cached."""
        return not self._requests

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or (self._requests and not self._paused))
                if self._stopping:
                    return
                for request_id, request in list(self._requests.items()):
                    self._step(request_id, request)
                self._stats.num_steps += 1
            time.sleep(self._options.step_s)

    def _step(self, request_id: int, request: _Request) -> None:
        if request.sampling is None:
            seed = sum(request.prompt)
            vector = np.cos(np.arange(self._options.pooled_size, dtype=np.float32) + seed)
            self._finish(FakeOutput(request_id, pooled=vector, finish_reason="stop"))
            return
        sampling, position = request.sampling, len(request.output)
        if position == self._options.fail_at_position:
            self._finish(
                FakeOutput(
                    request_id,
                    finish_reason="error",
                    error_code="INTERNAL",
                    error_message="The runner failed this request.",
                )
            )
            return
        output = FakeOutput(request_id)
        if position == 0 and sampling.prompt_logprobs != -1:
            output.prompt_logprobs = [
                _logprobs(t, sampling.prompt_logprobs) for t in request.prompt[1:]
            ]
        if sampling.max_tokens > 0:
            previous = request.output[-1] if request.output else request.prompt[-1]
            token = self._options.next_token(previous, position, sampling.seed & 0xFFFF)
            request.output.append(token)
            output.new_token_ids.append(token)
            if sampling.logprobs != -1:
                output.logprobs = [_logprobs(token, sampling.logprobs)]
            self._stats.generation_tokens += 1
            if len(request.output) > sampling.min_tokens:
                if token in sampling.eos_token_ids and not sampling.ignore_eos:
                    output.finish_reason = "stop"
                elif token in sampling.stop_token_ids:
                    output.finish_reason, output.stop_token_id = "stop", token
        if output.finish_reason is None and len(request.output) >= sampling.max_tokens:
            output.finish_reason = "length"
        self._finish(output) if output.finish_reason else self._emit(output)

    def _finish(self, output: FakeOutput) -> None:
        self._requests.pop(output.request_id, None)
        if output.finish_reason == "stop":
            self._stats.finished_stop += 1
        elif output.finish_reason == "length":
            self._stats.finished_length += 1
        else:
            self._stats.finished_error += 1
        self._emit(output)

    def _emit(self, output: FakeOutput) -> None:
        earlier = self._outputs.get(output.request_id)
        if earlier is not None:  # the native engine merges unread outputs, too
            output.new_token_ids = earlier.new_token_ids + output.new_token_ids
            if earlier.logprobs is not None:
                output.logprobs = earlier.logprobs + (output.logprobs or [])
            output.prompt_logprobs = earlier.prompt_logprobs or output.prompt_logprobs
        self._outputs[output.request_id] = output
        due = self._stats.num_steps % self._options.steps_per_wakeup == 0
        if (due or output.finish_reason) and not self._notified:
            self._notified = True  # one byte at most waits, so that the pipe never fills
            os.write(self._write_fd, b"x")
        self._lock.notify_all()


def _logprobs(token: int, count: int) -> FakeLogprobs:
    top = [((token + i) % 256, -0.5 - i) for i in range(max(count, 0))]
    return FakeLogprobs(token_id=token, logprob=-0.5, rank=1, top=top)
