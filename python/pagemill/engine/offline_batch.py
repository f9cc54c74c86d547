"""Runs a batch of requests to its end on the calling thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from pagemill.engine.async_engine import choice_output
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native import NativeBindings
from pagemill.engine.native_requests import native_requests, to_engine_error
from pagemill.engine.outputs import ChoiceOutput
from pagemill.engine.token_matcher import TokenMatcherFactory

_WAIT_S = 0.5  # a wait ends at the first output; this bounds the delay of Ctrl-C


class OfflineBatch:
    """Iterates over the outputs of `requests`; `ChoiceOutput.index` counts their choices.

    At most `window` choices are with the engine at a time, so that a batch may be larger than its
    queue. Leaving the iteration early, or an exception, aborts what runs.
    """

    def __init__(
        self,
        bindings: NativeBindings,
        requests: Sequence[EngineRequest],
        window: int,
        token_matcher: TokenMatcherFactory | None = None,
    ) -> None:
        """The ids of all choices are unused in the engine; `token_matcher` constrains the output
        of each of them."""
        self._bindings = bindings
        self._token_matcher = token_matcher
        self._requests = requests
        self._window = max(1, window)
        self._ids = [choice.id for request in requests for choice in request.choices]
        self._index = {request_id: index for index, request_id in enumerate(self._ids)}
        self._live: set[int] = set()

    def stop(self, index: int) -> None:
        """Aborts choice `index` if it runs: its caller needs no more of it."""
        request_id = self._ids[index]
        if request_id in self._live:
            self._live.discard(request_id)
            self._bindings.engine.abort(request_id)

    def __iter__(self) -> Iterator[ChoiceOutput]:
        waiting = self._native()
        upcoming = next(waiting, None)
        try:
            while self._live or upcoming is not None:
                while upcoming is not None and len(self._live) < self._window:
                    self._submit(*upcoming)
                    upcoming = next(waiting, None)
                for output in self._bindings.engine.wait(_WAIT_S):
                    if output.request_id not in self._live:
                        continue  # stopped, or of a batch that was left early
                    if output.finish_reason is not None:
                        self._live.discard(output.request_id)
                    index = self._index[output.request_id]
                    yield choice_output(output, index, time.monotonic())
        finally:
            for request_id in self._live:
                self._bindings.engine.abort(request_id)

    def _native(self) -> Iterator[tuple[ChoiceRequest, object]]:
        for request in self._requests:
            yield from native_requests(self._bindings, request, self._token_matcher)

    def _submit(self, choice: ChoiceRequest, native: object) -> None:
        try:
            self._bindings.engine.submit(native)
        except self._bindings.status_error as error:
            raise to_engine_error(error) from error
        self._live.add(choice.id)
