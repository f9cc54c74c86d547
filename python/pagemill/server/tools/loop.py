"""Generates, calls the tools that the model called, and generates again, until there is an answer.

    loop = ToolLoop(request, start, offers, LoopOptions(max_calls=32))
    loop.listen(on_news)        # begins; `on_news` is called as there is something to take
    for part in loop.take(1):   # a generation's `ChoiceDelta`, or a `ToolEvent`
        ...
    if loop.ended: ...

It is read as a `Generation` is. What goes wrong with a tool is text for the model, and no failure.
The loop ends with an output that has no calls of the server's tools, with a call that the client
has to make or to approve, and when there are no calls left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import Message
from pagemill.server.chat import requested_tokens
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.tools import choice
from pagemill.server.tools.call import ApprovedCall, LoopCall, Outcome, said
from pagemill.server.tools.events import CallBegun, CallReturned, Listed, ListingBegun, ToolEvent
from pagemill.server.tools.offer import Offer, OfferedTool
from pagemill.server.tools.tool import TIMED_OUT, ToolError, ToolResult

T = TypeVar("T")
StartChat = Callable[[ChatRequest], Awaitable[Generation]]

_LOGGER = logging.getLogger("pagemill.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """Bounds of a loop, and what it calls.

    There are at most `max_calls` calls. All has to have ended at `deadline`, by `time.monotonic()`;
    None: never. `on_call` gets the server of a call, whether it succeeded, and its seconds.
    `on_close` is called by the first `close`.
    """

    max_calls: int
    deadline: float | None = None
    on_call: Callable[[str, bool, float], None] = lambda server, succeeded, seconds: None
    on_close: Callable[[], None] = lambda: None


class ToolLoop:
    """One response: its generations, one after the other, and the calls between them."""

    def __init__(
        self,
        request: ChatRequest,
        start: StartChat,
        offers: Sequence[Offer],
        options: LoopOptions,
        approved: Sequence[ApprovedCall] = (),
    ) -> None:
        """Begins nothing yet.

        Args:
            request: the chat, with the tools of the client.
            start: begins a generation.
            offers: the servers that have the other tools.
            options: bounds, and functions that are called.
            approved: calls that come before the first generation.
        """
        self._request = request
        self._start = start
        self._offers = offers
        self._approved = approved
        self._options = options
        self._calls_left = options.max_calls
        self._max_tokens, _ = requested_tokens(request)
        self._is_closed = False
        self._on_news: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None  # what runs between generations
        self._events: list[ChoiceDelta | ToolEvent] = []
        self._tools: dict[str, OfferedTool] = {}  # by the names that the model knows
        self._num_calls = 0
        self._generation: Generation | None = None
        self._turn = Message()
        self._finish_reason: str | None = None
        self._is_over = False
        self._usage = Usage(0, 0, 0, PromptTokensDetails(0))
        self._reasoning_tokens = 0
        self.failure: ApiError | None = None
        """Why a generation failed, or did not begin."""

    @property
    def ended(self) -> bool:
        """True once `take` has returned the last part."""
        return self._is_over and not self._events

    @property
    def usage(self) -> Usage:
        """Tokens of all generations so far."""
        return self._usage if self._generation is None else _sum(self._usage, self._generation)

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the generated tokens are reasoning."""
        running = 0 if self._generation is None else self._generation.num_reasoning_tokens
        return self._reasoning_tokens + running

    def listen(self, on_news: Callable[[], None]) -> None:
        """Begins, the first time. Calls `on_news` when `take` has something or all has ended."""
        self._on_news = on_news
        if self._generation is not None:
            self._generation.listen(on_news)
        elif self._task is None:
            self._go(self._begin())

    def take(self, portion: int) -> Iterable[ChoiceDelta | ToolEvent]:
        """What is new since the last call, to be read before the next one; see `Generation.take`
        for `portion`."""
        events, self._events = self._events, []
        yield from events
        generation = self._generation
        if generation is None:
            return
        for delta in generation.take(portion):
            for event in delta.events:
                self._turn.add(event)
            self._finish_reason = delta.finish_reason or self._finish_reason
            yield delta
        if generation.ended:
            self._end_turn(generation)

    def close(self) -> None:
        """Aborts what has not finished."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._generation is not None:
            self._generation.close()
        if not self._is_closed:
            self._is_closed = True
            self._options.on_close()

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            self.failure = error
        except Exception:
            _LOGGER.exception("a response with tools failed")
            self.failure = ApiError(
                500, "The server failed in an unexpected way; its log says more."
            )
        self._is_over = self._is_over or self.failure is not None
        self._on_news()

    def _say(self, event: ChoiceDelta | ToolEvent) -> None:
        self._events.append(event)
        self._on_news()

    async def _begin(self) -> None:
        """Lists tools, makes the calls that were approved, and begins the first generation."""
        for offer in self._offers:
            self._say(ListingBegun(offer))
        await asyncio.gather(*(self._list(at, offer) for at, offer in enumerate(self._offers)))
        for each in self._approved:
            self._say(CallBegun(each))
        calls = [LoopCall.of_client(each, self._tools) for each in self._approved]
        outcomes = await self._make(calls)
        first = choice.of_offered(self._request.tool_choice, self._tools.values())
        if not calls:
            await self._begin_turn(first)
            return
        messages = [call.answered(each) for call, each in zip(calls, outcomes, strict=True)]
        await self._begin_turn(first, [said(self._turn, calls), *messages])

    async def _list(self, index: int, offer: Offer) -> None:
        try:
            tools = await self._timed(offer.tools())
        except ToolError as error:
            self._say(Listed(index, offer, (), error))
            return
        self._tools |= {tool.function_name: tool for tool in tools}
        self._say(Listed(index, offer, tools))

    async def _begin_turn(
        self, tool_choice: choice.Choice, more: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Begins a generation that answers the messages with `more`, if any tokens are left."""
        request = self._request
        if self._max_tokens is not None:
            left = self._max_tokens - self._usage.completion_tokens
            if left <= 0:
                self._is_over = True
                self._say(ChoiceDelta(0, [], [], None, [], "length"))
                return
            request = msgspec.structs.replace(request, max_completion_tokens=left)
        if more:
            request = _continued(request, more)
        self._request = msgspec.structs.replace(request, tool_choice=tool_choice)
        self._turn, self._finish_reason = Message(), None
        offered = [tool.function for tool in self._tools.values()]
        generation = await self._start(
            msgspec.structs.replace(self._request, tools=[*request.tools, *offered])
        )
        self._generation = generation
        generation.listen(self._on_news)

    def _end_turn(self, generation: Generation) -> None:
        """A generation is over: the calls of its output are next, if the server makes some."""
        self._usage = _sum(self._usage, generation)
        self._reasoning_tokens += generation.num_reasoning_tokens
        self._generation = None
        self.failure = generation.failure
        generation.close()
        calls = [LoopCall.of_model(call, self._tools) for call in self._turn.calls]
        is_whole = self.failure is None and self._finish_reason == "stop"
        if is_whole and any(call.may_run for call in calls):
            self._go(self._answer(calls))
        else:
            self._is_over = True

    async def _answer(self, calls: Sequence[LoopCall]) -> None:
        """Makes the calls of the turn, and begins the next one if all have a result."""
        could_call = self._calls_left > 0
        outcomes = await self._make(calls)
        if not could_call or not all(call.may_run for call in calls):
            self._is_over = True
            return
        messages = [call.answered(each) for call, each in zip(calls, outcomes, strict=True)]
        following = choice.after_calls(self._request.tool_choice)
        if self._calls_left <= 0:
            clients = [tool["function"]["name"] for tool in self._request.tools]
            following = choice.without_calls(clients)
        await self._begin_turn(following, [said(self._turn, calls), *messages])

    async def _make(self, calls: Sequence[LoopCall]) -> list[Outcome]:
        """Makes those of `calls` that may run, all at once; their outcomes in the same order."""
        running: list[Coroutine[Any, Any, Outcome]] = []
        for call in calls:
            if call.may_run:
                running.append(self._outcome(self._num_calls, call))
            self._num_calls += call.is_servers
        return await asyncio.gather(*running)

    async def _outcome(self, index: int, call: LoopCall) -> Outcome:
        outcome: Outcome
        try:
            if self._calls_left <= 0:
                raise ToolError("The call was not made: no more calls of tools are allowed.")
            self._calls_left -= 1
            tool, arguments = call.parsed()
            outcome = await self._called(tool, arguments)
        except ToolError as error:
            outcome = error
        self._say(CallReturned(index, outcome))
        return outcome

    async def _called(self, tool: OfferedTool, arguments: dict[str, Any]) -> ToolResult:
        begun, succeeded = time.monotonic(), False
        try:
            result = await self._timed(tool.server.call(tool.tool.name, arguments))
            succeeded = not result.is_error
            return result
        finally:
            self._options.on_call(tool.server.label, succeeded, time.monotonic() - begun)

    async def _timed(self, work: Coroutine[Any, Any, T]) -> T:
        deadline = self._options.deadline
        left = None if deadline is None else deadline - time.monotonic()
        try:
            async with asyncio.timeout(left):
                return await work
        except TimeoutError as error:
            raise ToolError("The time of the request is over.", TIMED_OUT) from error


def _continued(request: ChatRequest, more: Sequence[dict[str, Any]]) -> ChatRequest:
    """`request` with the messages `more`, the first of which is the assistant's."""
    before, first = list(request.messages), more[0]
    if request.continue_final_message:
        begun = before.pop()
        first = {**begun, **first, "content": (begun["content"] or "") + (first["content"] or "")}
    return msgspec.structs.replace(
        request,
        messages=[*before, first, *more[1:]],
        add_generation_prompt=True,
        continue_final_message=False,
    )


def _sum(before: Usage, generation: Generation) -> Usage:
    now = generation.usage
    cached = before.prompt_tokens_details.cached_tokens + now.prompt_tokens_details.cached_tokens
    return Usage(
        before.prompt_tokens + now.prompt_tokens,
        before.completion_tokens + now.completion_tokens,
        before.total_tokens + now.total_tokens,
        PromptTokensDetails(cached),
    )
