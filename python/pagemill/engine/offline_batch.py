"""Batches of requests that one thread runs on an engine of its process.

queue = OfflineQueue(core.bindings, core.max_choices)
OfflineBatch(queue, requests, on_output).run()
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from pagemill.engine.async_engine import choice_output
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native import NativeBindings, NativeOutput
from pagemill.engine.native_requests import (
    native_chunk,
    native_requests,
    output_functions,
    to_engine_error,
)
from pagemill.engine.output_functions import NO_FUNCTIONS, OutputFunctions, joined
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.inputs.rendered_prompt import InputChunk

_WAIT_S = 0.5  # a wait ends at the first output; this bounds the delay of Ctrl-C


class OfflineQueue:
    """Submits the choices of batches in order, and hands their outputs to the batches.

    At most `window` choices are with the engine at a time, so that batches may be larger than its
    queue. Nothing happens between two calls, except that the engine runs what was submitted. Used
    on one thread.
    """

    def __init__(self, bindings: NativeBindings, window: int) -> None:
        """Takes all outputs of the engine's own client."""
        self.bindings = bindings
        self._window = max(1, window)
        self._waiting: deque[OfflineBatch] = deque()
        self._live: dict[int, OfflineBatch] = {}  # by the id of a choice that the engine has
        self._process = os.getpid()  # which has the engine's threads

    def add(self, batch: OfflineBatch) -> None:
        """Queues a batch and submits what there is room for.

        Raises:
            EngineError: FAILED_PRECONDITION: the process was forked from the engine's.
        """
        if os.getpid() != self._process:
            message = (
                "this process was forked after the model was loaded, and no engine runs in it:"
                " load the model in this process, or start processes by the method `spawn`"
            )
            raise EngineError("FAILED_PRECONDITION", message)
        self._waiting.append(batch)
        self._submit()

    def has(self, request_id: int) -> bool:
        """Whether the engine has a choice."""
        return request_id in self._live

    def abort(self, request_id: int) -> None:
        """Ends a choice if the engine has it; there is no output of it from now on."""
        if self._live.pop(request_id, None) is not None:
            self.bindings.engine.abort(request_id)

    def step(self) -> None:
        """Submits what there is room for, and waits for outputs, at most half a second.

        Raises:
            EngineError: the engine is paused, so that no output would ever come.
        """
        self._submit()
        if not self._live:
            return
        outputs = self.bindings.engine.wait(_WAIT_S)
        if not outputs and self.bindings.engine.wait_paused(0.0):
            raise EngineError("FAILED_PRECONDITION", "the engine is paused; call resume() first")
        self._deliver(outputs)

    def poll(self) -> None:
        """Takes the outputs that are there, without waiting."""
        self._deliver(self.bindings.engine.poll())

    def _deliver(self, outputs: Sequence[NativeOutput]) -> None:
        now = time.monotonic()
        for output in outputs:
            batch = self._live.get(output.request_id)
            if batch is None:  # aborted here, but not yet by the engine
                continue
            if output.finish_reason is not None:
                del self._live[output.request_id]
            batch.take(output, now)

    def _submit(self) -> None:
        while self._waiting and len(self._live) < self._window:
            batch = self._waiting[0]
            try:
                following = batch.next_choice()
                if following is None:
                    self._waiting.popleft()
                    continue
                choice, native = following
                self.bindings.engine.submit(native)
                self._live[choice.id] = batch
            except EngineError as error:
                batch.fail(error)
            except self.bindings.status_error as error:
                batch.fail(to_engine_error(error))


class OfflineBatch:
    """Passes the outputs of `requests` to `on_output`; `ChoiceOutput.index` counts their choices.

    A choice that is refused or fails ends the whole batch.
    """

    def __init__(
        self,
        queue: OfflineQueue,
        requests: Sequence[EngineRequest],
        on_output: Callable[[ChoiceOutput], None],
        functions: OutputFunctions = NO_FUNCTIONS,
    ) -> None:
        """Submits nothing yet.

        Args:
            queue: where the ids of all choices are unused.
            requests: what to run.
            on_output: must not raise; it may be called while another batch of the queue waits.
            functions: of the caller, for each choice.
        """
        self._queue = queue
        self._on_output = on_output
        self._ids = [choice.id for request in requests for choice in request.choices]
        self._index = {request_id: index for index, request_id in enumerate(self._ids)}
        self._upcoming = self._native(requests, functions)
        self.failure: EngineError | None = None
        """Why the batch ended early."""

    @property
    def ended(self) -> bool:
        """True once no choice has more outputs."""
        return not self._index

    def submit(self) -> None:
        """Hands the batch to the queue; to be called once."""
        self._queue.add(self)

    def step(self) -> None:
        """Waits for outputs of any batch, for a short time.

        Raises:
            EngineError: this batch failed, or the engine is paused.
        """
        if not self.ended:
            self._queue.step()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        """Submits the batch and waits for its end; an exception aborts what runs of it.

        Raises:
            EngineError: see `step`.
        """
        try:
            self.submit()
            while not self.ended:
                self._queue.step()
        finally:
            self.close()
        if self.failure is not None:
            raise self.failure

    def extend(self, index: int, chunk: InputChunk) -> None:
        """Appends input to choice `index`, of a request with `streaming_input`, once the engine has
        the choice.

        Raises:
            EngineError: the engine refuses it, or the batch failed.
        """
        request_id = self._ids[index]
        while not self.ended and not self._queue.has(request_id):
            self._queue.step()
        if self.failure is not None:
            raise self.failure
        bindings = self._queue.bindings
        native = native_chunk(bindings, chunk)
        try:
            bindings.engine.extend(request_id, native)
        except bindings.status_error as error:
            raise to_engine_error(error) from error

    def stop(self, index: int) -> None:
        """Aborts choice `index` if it runs: its caller needs no more of it."""
        request_id = self._ids[index]
        self._index.pop(request_id, None)
        self._queue.abort(request_id)

    def fail(self, error: EngineError) -> None:
        """Ends the batch with `error`, unless it has ended."""
        if not self.ended:
            self.failure = error
            self.close()

    def close(self) -> None:
        """Aborts what has not ended. Idempotent."""
        self._upcoming = iter(())
        live, self._index = self._index, {}
        for request_id in live:
            self._queue.abort(request_id)

    def next_choice(self) -> tuple[ChoiceRequest, object] | None:
        """For the queue: the next choice to submit, and its native form; None after the last one.

        Raises:
            EngineError: it cannot be submitted.
        """
        return next(self._upcoming, None)

    def take(self, output: NativeOutput, now: float) -> None:
        """For the queue: an output of a choice; `now` is `time.monotonic()`."""
        index = self._index.get(output.request_id)
        if index is None:
            return
        if output.finish_reason is not None:
            del self._index[output.request_id]
        taken = choice_output(output, index, now)
        if taken.error is not None:
            self.failure = taken.error
            self.close()
        else:
            self._on_output(taken)

    def _native(
        self, requests: Sequence[EngineRequest], functions: OutputFunctions
    ) -> Iterator[tuple[ChoiceRequest, object]]:
        bindings = self._queue.bindings
        for request in requests:
            of_request = output_functions(bindings, [request])
            yield from native_requests(bindings, request, joined([*of_request, functions]))
