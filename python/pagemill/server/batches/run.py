"""One batch: its file is checked, its requests are answered, its answers become files.

    run = BatchRun(work, held)
    await run.run()    # until the batch ends, or `run.stop()`, or another process has it

What is answered is in the files of answers, line by line: a run that ends early, even by a crash,
is continued by the next one with the requests that have no answer yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import UNSET

from pagemill.server.access.caller import ANONYMOUS, Caller, admitted
from pagemill.server.answer import Answer
from pagemill.server.batch import (
    BatchError,
    BatchOutput,
    BatchRequest,
    answer_lines,
    failed_line,
    line_urls,
)
from pagemill.server.batches.answers import Answers, complete_rest
from pagemill.server.batches.folder import unix_time
from pagemill.server.batches.input import Limits, check_input, requests
from pagemill.server.batches.queue import Held
from pagemill.server.endpoints.endpoint import Endpoint
from pagemill.server.errors import ApiError
from pagemill.server.protocol.batch import Batch, BatchProblem, BatchProblems
from pagemill.server.speech.line import invoke_line
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")
_LOOK_S = 1.0  # how often the batch is looked at, and its counts are stored
_TURN_S = 60.0  # after which another key's batch may be next
_PORTION_LINES = 256
# Added to a key's own priority; larger numbers run later.
_PRIORITY = 2**30
_CODES = {401: "invalid_api_key", 404: "file_not_found", 507: "insufficient_storage"}
_Outcome = Literal["completed", "expired", "cancelled"]


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What all batches of a process have in common.

    `find_caller` finds the owner of a batch by the name of its key; None if there is no such key
    any longer. With `is_low_priority` the engine takes requests with a priority.
    """

    server: ServerState
    find_caller: Callable[[str], Caller | None]
    is_low_priority: bool


class BatchRun:
    """A process's work on a batch that it holds."""

    def __init__(self, work: BatchWork, held: Held) -> None:
        self._work = work
        self._held = held
        self._store = work.server.batch_store
        self._queue = self._store.queue
        self._stops = False
        self._is_exhausted = False
        self._answers: Answers | None = None
        self._owner = ANONYMOUS

    def stop(self) -> None:
        """Sends no more requests; `run` returns when those that were sent are answered."""
        self._stops = True

    async def run(self) -> None:
        """See the file's comment. Cancelling it drops requests that are being answered."""
        try:
            await self._run()
        except ApiError as error:
            await self._fail([BatchProblem(_CODES.get(error.status, "failed"), error.message)])
        finally:
            if self._answers is not None:
                self._answers.close()
            with contextlib.suppress(ApiError):  # logged; another process claims it in a while
                await self._queue.release(self._held)

    async def _run(self) -> None:
        batch = await self._update(lambda batch: None)
        if batch is None:
            return
        path = await self._store.files.content(self._held.owner, batch.input_file_id)
        if batch.status == "validating":
            batch = await self._check(path, batch)
            if batch is None:
                return
        outcome = _stated_outcome(batch)
        if outcome is not None and (batch.output_file_id or batch.error_file_id):
            # An earlier run has named the files, and may have completed one of them.
            await complete_rest(self._store.files, self._held, batch)
            self._ended(await self._update(functools.partial(_set_outcome, outcome=outcome)))
            return
        self._answers = await Answers.open(self._store.files, self._held)
        outcome = outcome or await self._answer(path, batch, self._answers)
        if outcome is not None:
            await self._end(outcome, self._answers)

    async def _check(self, path: Path, batch: Batch) -> Batch | None:
        """The batch once its file is found right; else it has failed."""
        limits = Limits(self._store.config.batch_max_lines, self._work.server.config.max_body_bytes)
        total, problems = await asyncio.to_thread(check_input, path, batch.endpoint, limits)
        if problems:
            await self._fail(problems)
            return None

        def begin(batch: Batch) -> None:
            if batch.status == "validating":
                batch.status, batch.in_progress_at = "in_progress", unix_time()
            batch.request_counts.total = total

        return await self._update(begin)

    async def _answer(self, path: Path, batch: Batch, answers: Answers) -> _Outcome | None:
        """Answers requests until there are none, or the batch is over; None: it is not."""
        self._owner = self._find_owner()
        concurrency = self._store.config.batch_concurrency
        lines = self._lines(path, answers)
        turn_ends = time.monotonic() + _TURN_S
        urls = line_urls(self._work.server.endpoints)

        async def write(output: BatchOutput) -> None:
            self._count(await answers.write(output))

        sending = asyncio.create_task(answer_lines(lines, urls, self._send, write, concurrency))
        try:
            while True:
                if unix_time() >= batch.expires_at:
                    break
                await asyncio.wait({sending}, timeout=_LOOK_S)
                if sending.done():
                    _raise_first(sending.exception())
                    return "completed" if self._is_exhausted else None
                found = await self._update(answers.count)
                if found is None:
                    return None
                if found.status == "cancelling":
                    return "cancelled"
                self._owner = self._find_owner()
                if time.monotonic() > turn_ends and await self._queue.others_wait(self._held):
                    self.stop()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return await self._expire(path, answers)

    async def _expire(self, path: Path, answers: Answers) -> _Outcome | None:
        """Says of each request that has no answer that the batch expired."""
        reason = "The batch expired before this request was answered."
        error = BatchError("batch_expired", reason)

        def count(batch: Batch) -> None:
            counts = batch.request_counts
            answers.count(batch)
            if counts.expired is UNSET:
                counts.expired = counts.total - counts.completed - counts.failed

        if await self._update(count) is None:
            return None
        left = requests(path, answers.custom_ids)
        while portion := list(itertools.islice(left, _PORTION_LINES)):
            lines = [failed_line(error, request.custom_id) for request in portion]
            await asyncio.gather(*map(answers.write, lines))
            for _ in lines:
                self._count(False)
            if await self._update(answers.count) is None:
                return None
        return "expired"

    def _lines(self, path: Path, answers: Answers) -> Iterator[BatchRequest]:
        for request in requests(path, answers.custom_ids):
            if self._stops:
                return
            yield request
        self._is_exhausted = True

    def _find_owner(self) -> Caller:
        """The owner, as its key is now.

        Raises:
            ApiError: 401 if there is no such key.
        """
        held = self._held
        found = self._work.find_caller(held.owner)
        if found is None:
            raise ApiError(401, f"The batch's API key {held.owner!r} does not exist any longer.")
        if self._work.is_low_priority:
            return replace(found, tenant=held.tenant, priority=found.priority_of(_PRIORITY))
        return replace(found, tenant=held.tenant)

    async def _send(self, endpoint: Endpoint, fields: dict[str, Any]) -> Answer:
        """Sends a request as its owner; waits while there is no engine."""
        server = self._work.server
        while True:
            try:
                with admitted(self._owner, server.limiter) as caller:
                    return await invoke_line(server, endpoint, fields, caller)
            except ApiError as error:
                if error.status != 503:
                    raise
                await asyncio.sleep(error.retry_after_s)

    async def _end(self, outcome: _Outcome, answers: Answers) -> None:
        def finalize(batch: Batch) -> None:
            answers.count(batch)
            answers.name(batch)
            if outcome != "cancelled":
                batch.status, batch.finalizing_at = "finalizing", unix_time()
            if outcome == "expired":
                batch.expired_at = unix_time()

        end = functools.partial(_set_outcome, outcome=outcome)
        await self._close_answers(finalize, end)

    async def _fail(self, problems: list[BatchProblem]) -> None:
        """The batch has failed; what was answered before stays."""

        def name(batch: Batch) -> None:
            if self._answers is not None:
                self._answers.count(batch)
                self._answers.name(batch)

        def fail(batch: Batch) -> None:
            batch.status, batch.failed_at = "failed", unix_time()
            batch.errors = BatchProblems(problems)

        with contextlib.suppress(ApiError):  # logged; the next run tries it again
            await self._close_answers(name, fail)

    async def _close_answers(
        self, before: Callable[[Batch], None], after: Callable[[Batch], None]
    ) -> None:
        """Makes files of the answers, and says so in the batch before and after."""
        batch = await self._update(before)
        if batch is None:
            return
        if self._answers is not None:
            await self._answers.end(batch)
        self._ended(await self._update(after))

    def _ended(self, batch: Batch | None) -> None:
        """Logs and counts the end of a batch, unless it is another process's."""
        if batch is None:
            return
        counts = batch.request_counts
        _LOGGER.info(
            "%s %s: %d request(s), %d answered, %d failed",
            batch.id,
            batch.status,
            counts.total,
            counts.completed,
            counts.failed,
        )
        pipeline = self._work.server.loaded
        if pipeline is not None:
            pipeline.metrics.batch_ended(batch.status)

    def _count(self, succeeded: bool) -> None:
        """Counts an answer."""
        pipeline = self._work.server.loaded
        if pipeline is not None:
            pipeline.metrics.batch_answered(succeeded)

    async def _update(self, change: Callable[[Batch], None]) -> Batch | None:
        return await self._queue.update(self._held, change)


def _stated_outcome(batch: Batch) -> _Outcome | None:
    """How the batch is to end, if that has been said; None: its requests are to be answered."""
    if batch.status == "cancelling":
        return "cancelled"
    if batch.status == "finalizing":
        return "completed" if batch.expired_at is None else "expired"
    return None


def _set_outcome(batch: Batch, outcome: _Outcome) -> None:
    batch.status = outcome
    match outcome:
        case "completed":
            batch.completed_at = unix_time()
        case "cancelled":
            batch.cancelled_at = unix_time()
        case "expired":
            batch.expired_at = unix_time()


def _raise_first(error: BaseException | None) -> None:
    """Raises what ended a group of tasks: the first failure in it."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        _raise_first(group.exceptions[0])
    if error is not None:
        raise error
