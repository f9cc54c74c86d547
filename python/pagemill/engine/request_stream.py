"""The outputs of one submitted request, merged over its choices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pagemill.engine.outputs import ChoiceOutput, EngineError


class RequestStream:
    """Gives lists of `ChoiceOutput`, each list holding at most one entry per choice.

    A consumer either iterates, or listens and takes. Outputs that arrive while it is busy are
    merged, so a slow consumer costs no more memory than the tokens themselves. Use it as a context
    manager: leaving the block aborts what has not finished, whatever the reason for leaving.

    Used on the event loop's thread only. Implements `OutputStream`.
    """

    num_dropped_tokens = 0

    def __init__(self, abort: Callable[[int], None], name: str = "") -> None:
        """`abort` ends a child request; `name` is that of `AsyncEngine.submit`."""
        self.name = name
        self._abort = abort
        self._choice_of: dict[int, int] = {}  # live child id -> choice index
        self._pending: dict[int, ChoiceOutput] = {}  # choice index -> output
        self._waiter: asyncio.Future[None] | None = None
        self._on_news: Callable[[], None] | None = None
        self.engine = 0
        """The number of the engine that runs it."""
        self.failure: EngineError | None = None
        """What ended all choices together, if that happened."""

    def __enter__(self) -> RequestStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> list[ChoiceOutput]:
        while not self._pending:
            if self.failure is not None:
                raise self.failure
            if not self._choice_of:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news`, which must not raise, when there are outputs or the stream has ended."""
        self._on_news = on_news

    def take(self) -> list[ChoiceOutput]:
        """The outputs since the last call."""
        outputs = list(self._pending.values())
        self._pending.clear()
        return outputs

    @property
    def exhausted(self) -> bool:
        """True once all choices have ended and their outputs have been taken."""
        return not self._choice_of and not self._pending

    @property
    def live_children(self) -> list[int]:
        """Native ids of the choices that have not finished."""
        return list(self._choice_of)

    def adopt(self, child: int, index: int) -> None:
        """Child request `child` is choice `index` from now on."""
        self._choice_of[child] = index

    def push(self, child: int, output: ChoiceOutput) -> None:
        """Takes an output of `child`; the engine calls it."""
        if child not in self._choice_of:
            return
        pending = self._pending.get(output.index)
        if pending is None:
            self._pending[output.index] = output
        else:
            _merge(pending, output)
        if output.finish_reason is not None:
            del self._choice_of[child]
        self._wake()

    def fail(self, error: EngineError) -> None:
        """Ends the stream: what is pending is still delivered, then `error` is raised."""
        self._choice_of.clear()
        self.failure = error
        self._wake()

    def abort(self) -> None:
        """Ends every choice that has not finished, with the reason "abort"."""
        for child, index in [*self._choice_of.items()]:
            self._abort(child)
            self.push(child, ChoiceOutput(index, [], [], finish_reason="abort"))

    def stop(self, index: int) -> None:
        """The consumer needs no more of choice `index` (a stop string matched): aborts it."""
        self._pending.pop(index, None)
        for child in [c for c, i in self._choice_of.items() if i == index]:
            del self._choice_of[child]
            self._abort(child)

    def close(self) -> None:
        """Aborts every choice that has not finished. Idempotent."""
        live, self._choice_of = self._choice_of, {}
        self._pending.clear()
        self._on_news = None
        for child in live:
            self._abort(child)
        self._wake()

    def _wake(self) -> None:
        if self._on_news is not None:
            self._on_news()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _merge(into: ChoiceOutput, later: ChoiceOutput) -> None:
    into.token_ids.extend(later.token_ids)
    into.token_times.extend(later.token_times)
    into.created = later.created
    if later.logprobs is not None:
        into.logprobs = (into.logprobs or []) + later.logprobs
    if later.prompt_logprobs is not None:
        into.prompt_logprobs = (into.prompt_logprobs or []) + later.prompt_logprobs
    into.num_cached_tokens = max(into.num_cached_tokens, later.num_cached_tokens)
    if later.finish_reason is None:
        return
    into.finish_reason = later.finish_reason
    into.stop_token_id = later.stop_token_id
    into.pooled = later.pooled
    into.error = later.error
    into.kv_transfer_params = later.kv_transfer_params
    into.num_evicted_tokens = later.num_evicted_tokens
    into.num_draft_steps = later.num_draft_steps
    into.num_draft_tokens = later.num_draft_tokens
    into.num_accepted_draft_tokens = later.num_accepted_draft_tokens
    into.queued_s = later.queued_s
    into.prefill_s = later.prefill_s
    into.decode_s = later.decode_s
    into.weight_versions = later.weight_versions
    into.routed_experts = later.routed_experts
