"""The native engine on an asyncio event loop.

    stream = engine.submit(prompts, sampling)
    with stream:
        async for outputs in stream:
            ...

The loop watches the engine's output descriptor; one wake-up drains all outputs that wait. Nothing
polls and nothing blocks the loop.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.native import NativeEngine, NativeOutput
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams

_REQUEST_FIELDS = frozenset(SamplingParams.__struct_fields__) | {"priority"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request: int32 token ids `[tokens]` and how many may follow."""

    token_ids: np.ndarray
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class NativeSeam:
    """What the compiled extension contributes: the engine, a constructor and its error."""

    engine: NativeEngine
    make_sampling: Callable[..., object]
    status_error: type[Exception]
    """Raised by the extension; has `code`, `message` and `retry_after_s`."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all children of a request have in common beside their sampling."""

    priority: int
    cache_salt: str
    tenant: str


class AsyncEngine:
    """Submits requests and routes outputs. Lives on one event loop; not thread-safe.

    Every submitted child request is either routed to a live `RequestStream` or has been aborted:
    `num_live` counts them, and `check_integrity` verifies the tables.
    """

    def __init__(self, native: NativeSeam, eos_token_ids: Sequence[int]) -> None:
        self._engine = native.engine
        self._make_sampling = native.make_sampling
        self._status_error = native.status_error
        self._eos_token_ids = tuple(eos_token_ids)
        self._ids = itertools.count(1)
        self._routes: dict[int, tuple[RequestStream, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1

    @property
    def num_live(self) -> int:
        """Child requests that have not finished and were not aborted."""
        return len(self._routes)

    def start(self) -> None:
        """Watches the engine's outputs on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._fd = self._engine.output_fd()
        self._loop.add_reader(self._fd, self._on_readable)

    def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None,
        *,
        priority: int = 0,
        cache_salt: str = "",
        tenant: str = "",
    ) -> RequestStream:
        """Submits each prompt `sampling.n` times; choice `p * n + i` is sample `i` of prompt `p`.

        `sampling` None asks for pooled outputs. `priority` and `tenant` are for the scheduling
        policies of these names: lower numbers run first, tenants share. Requests whose `cache_salt`
        differs share no KV. All or nothing: when one child is refused, those
        before it are aborted.

        Raises:
            EngineError: the engine's refusal.
        """
        stream = RequestStream(self._abort)
        terms = _Terms(priority, cache_salt, tenant)
        index = 0
        try:
            for prompt in prompts:
                for native in self._children(prompt, sampling):
                    self._submit_child(stream, index, prompt, native, terms)
                    index += 1
        except BaseException:
            stream.close()
            raise
        return stream

    def check_integrity(self) -> None:
        """Raises AssertionError when the routing table and the streams disagree."""
        for child, (stream, _) in self._routes.items():
            if child not in stream.live_children:
                raise AssertionError(f"child request {child} is routed to a stream without it")

    async def shutdown(self) -> None:
        """Aborts what runs, joins the engine's thread and ends every stream."""
        if self._loop is not None and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        await asyncio.to_thread(self._engine.shutdown)
        self._fail_all(EngineError("UNAVAILABLE", "The server is shutting down."))

    def _children(self, prompt: Prompt, sampling: SamplingParams | None) -> Sequence[object]:
        if sampling is None:
            return [None]
        return child_sampling(
            sampling,
            max_tokens=prompt.max_tokens,
            eos_token_ids=self._eos_token_ids,
            make=self._make_native_sampling,
        )

    def _make_native_sampling(self, **fields: object) -> object:
        try:
            return self._make_sampling(**fields)
        except self._status_error as error:
            raise to_engine_error(error) from error
        except (TypeError, OverflowError) as error:
            raise EngineError(
                "INVALID_ARGUMENT", f"A sampling parameter is out of range: {_first_line(error)}"
            ) from error

    def _submit_child(
        self,
        stream: RequestStream,
        index: int,
        prompt: Prompt,
        sampling: object,
        terms: _Terms,
    ) -> None:
        child = next(self._ids)
        try:
            self._engine.submit(
                child,
                prompt.token_ids,
                sampling,
                priority=terms.priority,
                cache_salt=terms.cache_salt,
                tenant=terms.tenant,
            )
        except self._status_error as error:
            raise to_engine_error(error) from error
        # Its first output may be waiting already, but is only read by this thread, later.
        self._routes[child] = (stream, index)
        stream.adopt(child, index)

    def _abort(self, child: int) -> None:
        if self._routes.pop(child, None) is not None:
            self._engine.abort(child)

    def _on_readable(self) -> None:
        try:
            outputs = self._engine.poll()
        except self._status_error as error:
            self._fail_all(to_engine_error(error))
            return
        now = time.monotonic()
        for output in outputs:
            route = self._routes.get(output.request_id)
            if route is None:  # aborted here; the engine had not heard of it yet
                continue
            stream, index = route
            if output.finish_reason is not None:
                del self._routes[output.request_id]
            stream.push(output.request_id, choice_output(output, index, now))

    def _fail_all(self, error: EngineError) -> None:
        streams = {id(stream): stream for stream, _ in self._routes.values()}
        self._routes.clear()
        for stream in streams.values():
            stream.fail(error)


def to_engine_error(error: Exception) -> EngineError:
    """The extension's StatusError as an EngineError; `param` is the field its sentence names."""
    code = str(getattr(error, "code"))  # noqa: B009  (the extension's type is only known to it)
    message = str(getattr(error, "message"))  # noqa: B009
    word = re.match(r"\W*([a-z_]+)", message)
    param = word[1] if word is not None and word[1] in _REQUEST_FIELDS else None
    return EngineError(code, message, param, int(getattr(error, "retry_after_s")))  # noqa: B009


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def choice_output(output: NativeOutput, index: int, now: float) -> ChoiceOutput:
    """A native output as choice `index` of its request; `now` is `time.monotonic()`."""
    token_ids = list(output.new_token_ids)
    made = ChoiceOutput(
        index,
        token_ids,
        [now] * len(token_ids),
        None if output.logprobs is None else list(output.logprobs),
        None if output.prompt_logprobs is None else list(output.prompt_logprobs),
        output.finish_reason,
        num_cached_tokens=output.num_cached_tokens,
        created=now,
    )
    if made.finish_reason is not None:  # the rest comes with the end, and reading it is not free
        made.stop_token_id = output.stop_token_id
        made.pooled = output.pooled
        made.queued_s = output.queued_s
        made.prefill_s = output.prefill_s
        made.decode_s = output.decode_s
        if output.error_code is not None:
            message = output.error_message or "The request failed."
            retry_after_s = output.error_retry_after_s
            made.error = EngineError(output.error_code, message, retry_after_s=retry_after_s)
    return made
