"""How `/v1/responses` writes a response."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import TEXTS, Event, Reasoning, joined
from pagemill.server.errors import ApiError
from pagemill.server.logprobs import LogprobFormatter, TokenLogprobs
from pagemill.server.protocol.response_events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamError,
)
from pagemill.server.protocol.response_items import McpCall
from pagemill.server.protocol.responses import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from pagemill.server.protocol.usage import Usage
from pagemill.server.responses.custom_tools import custom_names
from pagemill.server.responses.output import OpenItem, OutputItems
from pagemill.server.sse import HOLE, NumberedTemplate, named_event
from pagemill.server.tools.events import ToolEvent

_REASONS = {"length": "max_output_tokens"}
_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class Counts(Protocol):
    """What has been generated so far."""

    @property
    def usage(self) -> Usage:
        """Tokens of all generations."""
        ...

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the generated ones are reasoning."""
        ...


class ResponseWording:
    """Implements `respond.StreamWording` for one request.

    A response that is not streamed has the same events, but they are not written.
    """

    def __init__(
        self,
        response: Response,
        counts: Counts,
        logprobs: LogprobFormatter | None,
        *,
        include_reasoning: bool,
        is_streamed: bool,
    ) -> None:
        """`response` has the request's settings; the rest is filled in.

        Args:
            response: what is written.
            counts: of what answers.
            logprobs: writes the log probabilities of the answer's tokens; None: there are none.
            include_reasoning: whether it has what the model thinks.
            is_streamed: whether the events are written.
        """
        self.response = response
        self._counts = counts
        self._is_streamed = is_streamed
        self._logprobs = logprobs
        self._hides_reasoning = not include_reasoning
        self._output = OutputItems(self._say, custom_names(response.tools))
        self._finish_reason = "abort"
        self._written: list[bytes] = []
        self._number = 0
        self._template: NumberedTemplate | None = None
        self._template_of: OpenItem | None = None

    @property
    def has_logprobs(self) -> bool:
        """Whether the answer's tokens have their log probabilities."""
        return self._logprobs is not None

    @property
    def has_acted(self) -> bool:
        """Whether the server's tools were called, so that the output so far says what was done."""
        return any(isinstance(item, McpCall) for item in self._output.items)

    def begin(self) -> bytes:
        """See `respond.StreamWording`. Nothing the second time."""
        if self._number == 0:
            self._say(ResponseCreated(self.response))
            self._say(ResponseInProgress(self.response))
        return self._taken()

    def delta(self, delta: ChoiceDelta | ToolEvent) -> bytes:
        """See `respond.StreamWording`."""
        if not isinstance(delta, ChoiceDelta):
            self._output.add(delta)
            return self._taken()
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        events = delta.events
        if self._logprobs is not None:
            self._add_logprobs(delta.answer_logprobs)
        elif len(events) == 1 and self._is_streamed:
            item, (event,) = self._output.open, events
            if item is not None and isinstance(event, item.kind) and isinstance(event, TEXTS):
                return self._next_text(item, event.text)
        self._add(events)
        return self._taken()

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.StreamWording`."""
        begun = self.begin()
        self._finish(failure)
        last = {"completed": ResponseCompleted, "incomplete": ResponseIncomplete}
        self._say(last.get(self.response.status, ResponseFailed)(self.response))
        return begun + self._taken()

    def _next_text(self, item: OpenItem, text: str) -> bytes:
        """The event of a text that continues `item`, which most events are."""
        if not text:
            return b""
        if self._template is None or self._template_of is not item:
            delta = item.delta(HOLE)
            assert delta is not None  # what has no events is continued by none
            self._template, self._template_of = NumberedTemplate(delta), item
        item.parts.append(text)
        self._number += 1
        return self._template.event(text, self._number - 1)

    def _add_logprobs(self, logprobs: Sequence[TokenLogprobs] | None) -> None:
        if logprobs and self._logprobs is not None:
            written = self._logprobs.chat(logprobs, self.response.top_logprobs)
            self._output.add_logprobs(written.content)

    def _add(self, events: Sequence[Event]) -> None:
        for event in joined(events) if len(events) > 1 else events:
            if not (self._hides_reasoning and isinstance(event, Reasoning)):
                self._output.add(event)

    def _finish(self, failure: ApiError | None) -> None:
        response, reason = self.response, self._finish_reason
        complete = failure is None and reason == "stop"
        self._output.end(complete=complete)
        response.output = self._output.items
        response.usage = self._usage()
        if failure is not None:
            response.status = "failed"
            code = _CODES.get(failure.status, "server_error")
            response.error = ResponseError(code, failure.message)
            self._say(StreamError(code, failure.message, failure.param))
        elif complete:
            response.status = "completed"
            response.completed_at = int(time.time())
        else:
            response.status = "incomplete"
            response.incomplete_details = IncompleteDetails(_REASONS.get(reason, reason))

    def _usage(self) -> ResponseUsage:
        usage = self._counts.usage
        return ResponseUsage(
            usage.prompt_tokens,
            InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            OutputTokensDetails(self._counts.num_reasoning_tokens),
            usage.total_tokens,
        )

    def _say(self, event: ResponseEvent) -> None:
        event.sequence_number = self._number
        self._number += 1
        if self._is_streamed:
            self._written.append(named_event(event))

    def _taken(self) -> bytes:
        written, self._written = self._written, []
        return b"".join(written)
