"""A stand-in for the native engine, for tests of everything above it.

It has the methods of `_native.Engine` that requests need, a thread of its own and a readable
descriptor for each client, and no model. Tests script it through `FakeOptions`.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from pagemill.engine.native import NativeBindings
from pagemill.engine.testing.fake_client import CLIENT_SHIFT, FakeClient, Outbox
from pagemill.engine.testing.fake_model import FakeOptions, FakeState, step
from pagemill.engine.testing.fake_outputs import FakeOutput, FakeStats
from pagemill.engine.testing.fake_types import (
    FakeInputChunk,
    FakeRequest,
    FakeStatusError,
    FakeTypes,
)


def fake_bindings(engine: FakeEngine) -> NativeBindings:
    """`engine` in place of the compiled one."""
    return NativeBindings(engine, FakeTypes())


class FakeEngine:
    """See the module. Thread-safe like the native engine. Its own client has number 0."""

    def __init__(self, options: FakeOptions | None = None) -> None:
        self._options = options or FakeOptions()
        self._lock = threading.Condition()
        self._requests: dict[int, FakeState] = {}
        self._outboxes = {0: Outbox()}
        self._stats = FakeStats()
        self._stopping = False
        self._paused = False
        self._most_tokens: int | None = None
        self.submitted: list[FakeState] = []
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

    @property
    def most_tokens(self) -> int | None:
        """Requests that have written so many tokens wait while it is set."""
        return self._most_tokens

    @most_tokens.setter
    def most_tokens(self, most_tokens: int | None) -> None:
        with self._lock:
            self._most_tokens = most_tokens
            self._lock.notify_all()

    def submit(self, request: FakeRequest) -> None:
        """Accepts a request. Raises FakeStatusError for a refusal."""
        self.accept(request.id, request)

    def accept(self, request_id: int, request: FakeRequest) -> None:
        """Accepts a request of the client whose number the id has; a FakeClient calls it."""
        sampling, priority = request.sampling, request.priority
        with self._lock:
            try:
                self.check_room()
            except FakeStatusError:
                self._stats.num_refused += 1
                raise
            if priority != 0 and not self._options.uses_priority:
                raise FakeStatusError(
                    "INVALID_ARGUMENT", f"priority is {priority}, but nothing uses it."
                )
            if sampling is not None and not 0 <= sampling.temperature <= 100:
                raise FakeStatusError(
                    "INVALID_ARGUMENT", f"temperature must be >= 0, got {sampling.temperature}."
                )
            pools, aligns = self._options.pooled_size > 0, self._options.alignment is not None
            if (sampling is None) != pools and not aligns:
                raise FakeStatusError("INVALID_ARGUMENT", "The wrong kind of request.")
            if request_id in self._requests:
                raise FakeStatusError("FAILED_PRECONDITION", "The request id is in use.")
            state = FakeState(request)
            self._requests[request_id] = state
            self.submitted.append(state)
            self._stats.num_submitted += 1
            self._stats.prompt_tokens += len(state.prompt)
            self._lock.notify_all()

    def check_room(self) -> None:
        """Raises the FakeStatusError with which any request would be refused now."""
        with self._lock:
            if self._stats.draining or self._stopping:
                raise FakeStatusError("UNAVAILABLE", "The engine is draining.")
            if len(self._requests) >= self._options.max_running + self._options.max_waiting:
                raise FakeStatusError(
                    "RESOURCE_EXHAUSTED",
                    "Too many requests are waiting.",
                    self._options.retry_after_s,
                )

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

    def extend(self, request_id: int, chunk: FakeInputChunk) -> None:
        """Appends input to a request that has more to come."""
        with self._lock:
            request = self._requests.get(request_id)
            if request is None:
                raise FakeStatusError("NOT_FOUND", "The request does not exist, or ended.")
            if not request.input_open:
                raise FakeStatusError("FAILED_PRECONDITION", "The input is complete.")
            begin = len(request.prompt)
            request.prompt += chunk.token_ids
            request.media += [replace(m, first_token=begin + m.first_token) for m in chunk.media]
            request.input_open = chunk.part == "more"
            self._lock.notify_all()

    def new_client(self) -> FakeClient:
        """A client with outputs of its own."""
        with self._lock:
            number = max(self._outboxes) + 1
            self._outboxes[number] = Outbox()
        return FakeClient(self, number)

    def close_client(self, number: int) -> None:
        """Aborts the client's requests and drops what it has not read."""
        with self._lock:
            for request_id in list(self._requests):
                if request_id >> CLIENT_SHIFT == number:
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

    def wait_paused(self, timeout_s: float) -> bool:
        """Whether `paused` is set; does not wait."""
        del timeout_s
        return self._paused

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
                    output = step(self._options, request_id, request)
                    self._stats.generation_tokens += len(output.new_token_ids)
                    self._finish(output) if output.finish_reason else self._emit(output)
                self._stats.num_steps += 1
            time.sleep(self._options.step_s)

    def _ready(self) -> list[tuple[int, FakeState]]:
        return [(i, r) for i, r in self._requests.items() if not self._waits(r)]

    def _waits(self, request: FakeState) -> bool:
        most = self._most_tokens
        has_most = most is not None and len(request.output) >= most
        return request.held or request.input_open or has_most

    def _finish(self, output: FakeOutput) -> None:
        self._requests.pop(output.request_id, None)
        if output.finish_reason == "stop":
            self._stats.finished_stop += 1
        elif output.finish_reason == "length":
            self._stats.finished_length += 1
        elif output.finish_reason == "repetition":
            self._stats.finished_repetition += 1
        else:
            self._stats.finished_error += 1
        self._emit(output)

    def _emit(self, output: FakeOutput) -> None:
        due = self._stats.num_steps % self._options.steps_per_wakeup == 0
        self._outboxes[output.request_id >> CLIENT_SHIFT].push(output, due)
        self._lock.notify_all()
