"""From a `Generation` to the response of an API, streamed or not.

Every endpoint that generates calls `respond` with a `Wording`: how its API writes events.

    answer = await respond(generation, ChatWording(...), stream_interval)

A response that is not streamed is the fold of the events that a stream writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import Message
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
from pagemill.server.protocol.usage import Usage
from pagemill.server.records.timings import RequestTimings

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)
D_contra = TypeVar("D_contra", contravariant=True)
_LOGGER = logging.getLogger("pagemill.server")


class FoldedChoice:
    """A complete choice: the fold of its deltas."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.message = Message()
        self.token_ids: list[int] = []
        self.offsets: list[int] = []
        self.logprobs: list[Any] = []
        self.prompt_logprobs: list[Any] | None = None
        self.finish_reason = "abort"
        self.stop_reason: str | int | None = None
        self.routed_experts: npt.NDArray[np.uint16] | None = None

    def add(self, delta: ChoiceDelta) -> None:
        """Appends the next delta."""
        for event in delta.events:
            self.message.add(event)
        self.token_ids += delta.token_ids
        self.offsets += delta.offsets
        self.logprobs += delta.logprobs or ()
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason
            self.routed_experts = delta.routed_experts


class Generated(Protocol):
    """What a `Wording` needs to know of a request beside its events; `Generation` has it."""

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        ...

    @property
    def prompts(self) -> Sequence[np.ndarray]:
        """Token ids of each prompt."""
        ...

    def prompt_number(self, index: int) -> int:
        """Which of the prompts choice `index` continues."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        ...

    @property
    def prompt_usage(self) -> Usage:
        """The usage before the first generated token."""
        ...

    @property
    def timings(self) -> RequestTimings:
        """Where the time went so far."""
        ...

    @property
    def kv_transfer_params(self) -> dict[str, str]:
        """Of the KV connector, once a choice has ended."""
        ...


class Source(Protocol[D_co]):
    """What a response is made of: a `Generation`, or several with calls in between."""

    @property
    def failure(self) -> ApiError | None:
        """Why it ended early."""
        ...

    @property
    def ended(self) -> bool:
        """True once `take` has returned the last delta."""
        ...

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when `take` has something or the source has ended."""
        ...

    def take(self, portion: int) -> Iterable[D_co]:
        """See `Generation.take`."""
        ...

    def close(self) -> None:
        """Aborts what has not finished."""
        ...


class StreamWording(Protocol[D_contra]):
    """How one API writes one stream: as bytes of server-sent events."""

    def begin(self) -> bytes:
        """What comes before the first delta."""
        ...

    def delta(self, delta: D_contra) -> bytes:
        """A delta; b"" if it says nothing in this API."""
        ...

    def end(self, failure: ApiError | None) -> bytes:
        """What comes after the last delta."""
        ...


class Wording(StreamWording[ChoiceDelta], Protocol):
    """How one API writes one response, streamed or not."""

    def whole(self, choices: Sequence[FoldedChoice]) -> msgspec.Struct:
        """A response that is not streamed."""
        ...


class ResponseEvents(Generic[D]):
    """A stream: the bytes of a source's events as they come."""

    def __init__(self, source: Source[D], wording: StreamWording[D], interval: int) -> None:
        """`interval`: tokens of one event."""
        self._source = source
        self._wording = wording
        self._interval = interval
        self._begun = False
        self.ended = False
        self.failure: ApiError | None = None

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news` when `take` may have something."""
        self._source.listen(on_news)

    def take(self, behind: bool) -> bytes:
        """The events since the last call; sets `ended` with the last ones.

        A reader that is `behind`, because its connection is full, gets one event for all tokens of
        a choice that it missed.
        """
        source, write = self._source, self._wording.delta
        parts: list[bytes] = []
        try:
            for delta in source.take(0 if behind else self._interval):
                if not self._begun:
                    self._begun = True
                    parts.append(self._wording.begin())
                parts.append(write(delta))
            if source.ended:
                self._end(parts, source.failure)
        except Exception:
            _LOGGER.exception("a stream failed")
            failure = ApiError(500, "The server failed while it streamed; see its log.")
            self._end(parts, failure)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Aborts what has not finished."""
        self._source.close()

    def _end(self, parts: list[bytes], failure: ApiError | None) -> None:
        self.ended = True
        self.failure = failure
        parts.append(self._wording.end(failure))


async def respond(
    generation: Generation, wording: Wording, stream_interval: int | None
) -> msgspec.Struct | ResponseEvents[ChoiceDelta]:
    """The response of an endpoint, which closes `generation`.

    Args:
        generation: what was submitted.
        wording: of the endpoint's API.
        stream_interval: tokens of one event of a stream; None: the response is not streamed.

    Raises:
        ApiError: a choice of a response that is not streamed failed.
    """
    if stream_interval is not None:
        return ResponseEvents(generation, wording, stream_interval)
    return wording.whole(await whole_choices(generation))


async def read_all(source: Source[D], add: Callable[[D], object], portion: int = 0) -> None:
    """Gives every delta of `source` to `add`, until the source has ended; see `Source.take` for
    `portion`."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def read() -> None:
        if ended.done():
            return
        try:
            for delta in source.take(portion):
                add(delta)
            if source.ended:
                ended.set_result(None)
        except Exception as error:
            ended.set_exception(error)

    source.listen(read)
    read()
    await ended


async def whole_choices(generation: Generation) -> list[FoldedChoice]:
    """The choices of `generation`, which is closed.

    Raises:
        ApiError: one of them failed.
    """
    choices = [FoldedChoice(index) for index in range(generation.num_choices)]
    try:
        await read_all(generation, lambda delta: choices[delta.index].add(delta))
        if generation.failure is not None:
            raise generation.failure
        return choices
    finally:
        generation.close()
