"""Outputs of requests that were submitted without waiting for them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
from collections.abc import Sequence
from typing import TextIO

from pagemill.engine.offline_batch import OfflineQueue
from pagemill.engine.outputs import EngineError
from pagemill.engine.progress_bar import ProgressBar
from pagemill.engine.text_batch import Output, TextBatch

_LOGGER = logging.getLogger("pagemill.engine")
_MAX_CHOICES = 100_000


class Enqueued:
    """Holds requests until their outputs are read. Used on one thread."""

    def __init__(self, queue: OfflineQueue, max_choices: int = _MAX_CHOICES) -> None:
        """`queue`: where the batches run. `max_choices`: of all requests that are held together."""
        self._queue = queue
        self._max_choices = max_choices
        self._ids = itertools.count(1)
        self._batches: dict[int, TextBatch] = {}
        self._num_choices = 0  # of all of them

    def submit(self, batches: Sequence[TextBatch]) -> list[int]:
        """Submits requests, each a batch of one prompt; returns their ids. All or nothing.

        Raises:
            EngineError: there would be too many, or the engine refuses one at once.
        """
        held = self._num_choices + sum(batch.num_choices for batch in batches)
        if held > self._max_choices:
            raise EngineError(
                "RESOURCE_EXHAUSTED",
                f"{held} choices would be enqueued, and at most {self._max_choices} can be: read"
                " outputs with wait_for_completion() first",
            )
        try:
            for batch in batches:
                batch.submit()
                if batch.failure is not None:
                    raise batch.failure
        except BaseException:
            for batch in batches:
                batch.close()
            raise
        ids = list(itertools.islice(self._ids, len(batches)))
        self._batches.update(zip(ids, batches, strict=True))
        self._num_choices = held
        return ids

    def wait(self, request_ids: Sequence[int] | None, progress: TextIO | None) -> list[Output]:
        """Waits for these requests, all by default, and returns their outputs in order.

        Raises:
            EngineError: a request failed, and is not held any more; the others are. Or an id is
                unknown, or the engine is paused.
        """
        wanted = list(self._batches) if request_ids is None else list(request_ids)
        for request_id in wanted:
            if request_id not in self._batches:
                raise EngineError(
                    "NOT_FOUND",
                    f"request {request_id} was never enqueued, or its output has been read",
                )
        batches = [self._batches[request_id] for request_id in wanted]
        num_choices = sum(batch.num_choices for batch in batches)
        with contextlib.closing(ProgressBar(num_choices, progress or sys.stderr)) as bar:
            for request_id, batch in zip(wanted, batches, strict=True):
                self._wait(request_id, batch, bar)
        for request_id in wanted:
            self._forget(request_id)
        return [output for batch in batches for output in batch.outputs]

    def close(self) -> None:
        """Fails the requests that have not ended; outputs of the others can still be read."""
        if self._unfinished():
            self._queue.poll()  # what has ended meanwhile
        unfinished = self._unfinished()
        error = EngineError("UNAVAILABLE", "the model was closed before the request ended")
        for batch in unfinished:
            batch.fail(error)
            batch.close()
        if unfinished:
            _LOGGER.warning("closed with enqueued requests that had not ended: %d", len(unfinished))

    def _forget(self, request_id: int) -> None:
        batch = self._batches.pop(request_id, None)
        if batch is not None:
            self._num_choices -= batch.num_choices

    def _unfinished(self) -> list[TextBatch]:
        return [batch for batch in self._batches.values() if not batch.ended]

    def _wait(self, request_id: int, batch: TextBatch, bar: ProgressBar) -> None:
        try:
            for delta in batch:
                bar.add(tokens=len(delta.token_ids), finished=delta.finish_reason is not None)
        except EngineError as error:
            if batch.failure is None:  # it goes on, such as after a pause
                raise
            self._forget(request_id)
            batch.close()
            message = f"enqueued request {request_id}: {error.message}"
            raise EngineError(error.code, message, error.param, error.retry_after_s) from error
