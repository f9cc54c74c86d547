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
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec
import numpy as np


class FakeStatusError(Exception):
    """What the extension calls StatusError."""

    def __init__(self, code: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class FakeRequest(types.SimpleNamespace):
    """Any fields of the native Request; defaults of those that the fake engine reads."""

    id: int = 0
    prompt_token_ids: Sequence[int] | np.ndarray = ()
    sampling: FakeSampling | None = None
    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    starts_held: bool = False
    streaming_input: bool = False


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
    held: bool = False
    input_open: bool = False
    output: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class Submitted:
    """What came with a request beside its prompt and its sampling."""

    priority: int
    cache_salt: str
    tenant: str


class _Outbox:
    """The unread outputs of one client; guarded by the engine's lock."""

    def __init__(self) -> None:
        self.outputs: dict[int, FakeOutput] = {}
        self.notified = False
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)

    def push(self, output: FakeOutput, due: bool) -> None:
        """Merges it with what waits, like the native engine, and wakes the reader if `due`."""
        earlier = self.outputs.get(output.request_id)
        if earlier is not None:
            output.new_token_ids = earlier.new_token_ids + output.new_token_ids
            if earlier.logprobs is not None:
                output.logprobs = earlier.logprobs + (output.logprobs or [])
            output.prompt_logprobs = earlier.prompt_logprobs or output.prompt_logprobs
        self.outputs[output.request_id] = output
        if (due or output.finish_reason) and not self.notified:
            self.notified = True  # one byte at most waits, so that the pipe never fills
            os.write(self._write_fd, b"x")

    def take(self) -> list[FakeOutput]:
        """All that waits."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_fd, 4096)
        taken = list(self.outputs.values())
        self.outputs.clear()
        self.notified = False
        return taken

    def close(self) -> None:
        """Frees the descriptors."""
        os.close(self.read_fd)
        os.close(self._write_fd)


_CLIENT_SHIFT = 48
_OWN_ID = (1 << _CLIENT_SHIFT) - 1


class FakeClient:
    """The methods of the native EngineClient; ids carry the client's number, as there."""

    def __init__(self, engine: FakeEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._closed = False

    def submit(self, request: FakeRequest) -> None:
        """Raises FakeStatusError for a refusal."""
        self._engine.accept(self._id(request.id), request)

    def abort(self, request_id: int) -> None:
        """Unknown ids are ignored."""
        self._engine.abort(self._id(request_id))

    def release(self, request_id: int) -> None:
        """Lets a held request start."""
        self._engine.release(self._id(request_id))

    def extend(self, request_id: int, token_ids: Sequence[int], part: str) -> None:
        """Appends input; a turn that is not the last is refused."""
        self._engine.extend(self._id(request_id), token_ids, part)

    def poll(self) -> list[FakeOutput]:
        """All waiting outputs."""
        outputs = self._engine.take(self._number)
        return [replace(o, request_id=o.request_id & _OWN_ID) for o in outputs]

    def poll_wire(self) -> bytes:
        """For `decode_fake_outputs`."""
        return _encode_outputs(self.poll())

    def output_fd(self) -> int:
        """Readable while outputs wait."""
        return self._engine.output_fd(self._number)

    def close(self) -> None:
        """Aborts the client's requests."""
        if not self._closed:
            self._closed = True
            self._engine.close_client(self._number)

    def _id(self, own: int) -> int:
        return self._number << _CLIENT_SHIFT | own


def _encode_outputs(outputs: Sequence[FakeOutput]) -> bytes:
    def array(value: object) -> list[float]:
        assert isinstance(value, np.ndarray)
        return value.tolist()

    return msgspec.msgpack.encode(outputs, enc_hook=array)


def decode_fake_outputs(wire: bytes) -> list[FakeOutput]:
    """What `poll_wire` returned. Raises FakeStatusError for anything else."""

    def array(kind: type, value: object) -> object:
        return np.array(value, dtype=np.float32) if kind is np.ndarray else value

    try:
        return msgspec.msgpack.decode(wire, type=list[FakeOutput], dec_hook=array)
    except msgspec.DecodeError as error:
        raise FakeStatusError("INVALID_ARGUMENT", str(error)) from error


class FakeEngine:
    """See the module. Thread-safe like the native engine. Its own client has number 0."""

    def __init__(self, options: FakeOptions | None = None) -> None:
        self._options = options or FakeOptions()
        self._lock = threading.Condition()
        self._requests: dict[int, _Request] = {}
        self._outboxes = {0: _Outbox()}
        self._stats = FakeStats()
        self._stopping = False
        self._paused = False
        self.submitted: list[Submitted] = []
        self.kv_log_id = 1
        self.kv_log: list[dict[str, Any]] = []
        """What `kv_events` returns; nothing is cached, so a test fills it."""
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    @property
    def paused(self) -> bool:
        """No step runs while it is set."""
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
        media_positions: Sequence[tuple[np.ndarray, np.ndarray, int]] = (),
    ) -> None:
        """Accepts a request. Raises FakeStatusError for a refusal."""
        del skip_reading_prefix_cache, new_token_matcher, media, media_features, media_positions
        assert sampling is None or isinstance(sampling, FakeSampling)
        self.accept(
            request_id,
            FakeRequest(
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
                priority=priority,
                cache_salt=cache_salt,
                tenant=tenant,
            ),
        )

    def accept(self, request_id: int, request: FakeRequest) -> None:
        """Accepts a request of the client whose number the id has; a FakeClient calls it."""
        sampling, priority = request.sampling, request.priority
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
            if request_id in self._requests:
                raise FakeStatusError("FAILED_PRECONDITION", "The request id is in use.")
            prompt = [int(t) for t in request.prompt_token_ids]
            held, streams = request.starts_held, request.streaming_input
            self._requests[request_id] = _Request(prompt, sampling, held, streams)
            self.submitted.append(Submitted(priority, request.cache_salt, request.tenant))
            self._stats.num_submitted += 1
            self._stats.prompt_tokens += len(prompt)
            self._lock.notify_all()

    def abort(self, request_id: int) -> None:
        """Ends a request; unknown ids are ignored."""
        with self._lock:
            if self._requests.pop(request_id, None) is not None:
                self._stats.finished_abort += 1
                self._emit(FakeOutput(request_id, finish_reason="abort"))

    def release(self, request_id: int) -> None:
        """Lets a held request start."""
        with self._lock:
            if request_id in self._requests:
                self._requests[request_id].held = False
                self._lock.notify_all()

    def extend(self, request_id: int, token_ids: Sequence[int], part: str) -> None:
        """Appends input to a request that has more to come."""
        with self._lock:
            request = self._requests.get(request_id)
            if request is None:
                raise FakeStatusError("NOT_FOUND", "The request does not exist, or ended.")
            if not request.input_open:
                raise FakeStatusError("FAILED_PRECONDITION", "The input is complete.")
            request.prompt += token_ids
            request.input_open = part == "more"
            self._lock.notify_all()

    def new_client(self) -> FakeClient:
        """A client with outputs of its own."""
        with self._lock:
            number = max(self._outboxes) + 1
            self._outboxes[number] = _Outbox()
        return FakeClient(self, number)

    def close_client(self, number: int) -> None:
        """Aborts the client's requests and drops what it has not read."""
        with self._lock:
            for request_id in list(self._requests):
                if request_id >> _CLIENT_SHIFT == number:
                    self.abort(request_id)
            self._outboxes.pop(number).close()

    def take(self, number: int) -> list[FakeOutput]:
        """All waiting outputs of a client, with the engine's ids."""
        with self._lock:
            return self._outboxes[number].take()

    def poll(self) -> list[FakeOutput]:
        """All waiting outputs."""
        return self.take(0)

    def wait(self, timeout_s: float) -> list[FakeOutput]:
        """Like poll, after waiting for the first output."""
        with self._lock:
            self._lock.wait_for(lambda: self._outboxes[0].outputs or self._stopping, timeout_s)
        return self.poll()

    def output_fd(self, number: int = 0) -> int:
        """Readable while outputs of the client wait."""
        return self._outboxes[number].read_fd

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

    def kv_events(self, sequence: int, max_events: int) -> dict[str, Any]:
        """Those of `kv_log`, numbered from 1."""
        if sequence > len(self.kv_log) + 1:
            raise FakeStatusError("INVALID_ARGUMENT", f"KV event {sequence} does not exist yet")
        events = self.kv_log[sequence - 1 :][:max_events]
        following = sequence + len(events)
        return {"log_id": self.kv_log_id, "events": events, "next": following, "dropped": 0}

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopping or (self._ready() and not self._paused))
                if self._stopping:
                    return
                for request_id, request in self._ready():
                    self._step(request_id, request)
                self._stats.num_steps += 1
            time.sleep(self._options.step_s)

    def _ready(self) -> list[tuple[int, _Request]]:
        return [(i, r) for i, r in self._requests.items() if not (r.held or r.input_open)]

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
        due = self._stats.num_steps % self._options.steps_per_wakeup == 0
        self._outboxes[output.request_id >> _CLIENT_SHIFT].push(output, due)
        self._lock.notify_all()


def _logprobs(token: int, count: int) -> FakeLogprobs:
    top = [((token + i) % 256, -0.5 - i) for i in range(max(count, 0))]
    return FakeLogprobs(token_id=token, logprob=-0.5, rank=1, top=top)
