"""Runs a batch of native requests to its end on the calling thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pagemill.engine.async_engine import choice_output
from pagemill.engine.media import MediaItem, native_media
from pagemill.engine.native import NativeSeam
from pagemill.engine.native_requests import to_engine_error
from pagemill.engine.outputs import ChoiceOutput
from pagemill.engine.token_matcher import TokenMatcherFactory

_WAIT_S = 0.5  # a wait ends at the first output; this bounds the delay of Ctrl-C


@dataclass(frozen=True, slots=True)
class Request:
    """`prompt` int32 [tokens]; native `sampling` parameters, None for a pooled output; images."""

    prompt: np.ndarray
    sampling: object | None
    media: Sequence[MediaItem] = ()


class OfflineBatch:
    """Iterates over the outputs of `requests`; `ChoiceOutput.index` is the request's place.

    At most `window` requests are with the engine at a time, so that a batch may be larger than its
    queue. Leaving the iteration early, or an exception, aborts what runs.
    """

    def __init__(
        self,
        seam: NativeSeam,
        requests: Sequence[Request],
        window: int,
        first_id: int,
        token_matcher: TokenMatcherFactory | None = None,
    ) -> None:
        """`first_id` and the ids after it, one per request, are unused in the engine;
        `token_matcher` constrains the output of every request."""
        self._seam = seam
        self._token_matcher = token_matcher
        self._requests = requests
        self._window = max(1, window)
        self._first_id = first_id
        self._live: set[int] = set()

    def stop(self, index: int) -> None:
        """Aborts request `index`, if it runs: its caller has seen enough."""
        request_id = self._first_id + index
        if request_id in self._live:
            self._live.discard(request_id)
            self._seam.engine.abort(request_id)

    def __iter__(self) -> Iterator[ChoiceOutput]:
        submitted = 0
        try:
            while self._live or submitted < len(self._requests):
                while submitted < len(self._requests) and len(self._live) < self._window:
                    self._submit(submitted)
                    submitted += 1
                for output in self._seam.engine.wait(_WAIT_S):
                    if output.request_id not in self._live:
                        continue  # stopped, or of a batch that was given up
                    index = output.request_id - self._first_id
                    if output.finish_reason is not None:
                        self._live.discard(output.request_id)
                    yield choice_output(output, index, time.monotonic())
        finally:
            for request_id in self._live:
                self._seam.engine.abort(request_id)

    def _submit(self, index: int) -> None:
        request = self._requests[index]
        try:
            self._seam.engine.submit(
                self._first_id + index,
                request.prompt,
                request.sampling,
                new_token_matcher=self._token_matcher,
                **native_media(request.media),
            )
        except self._seam.status_error as error:
            raise to_engine_error(error) from error
        self._live.add(self._first_id + index)
