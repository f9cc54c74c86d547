"""How `/v1/responses` writes a response."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import Event, Reasoning, Text
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
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
from pagemill.server.protocol.responses import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from pagemill.server.respond import FoldedChoice
from pagemill.server.responses.output import OpenItem, OutputItems
from pagemill.server.sse import HOLE, NumberedTemplate, named_event

_REASONS = {"length": "max_output_tokens"}
_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponseWording:
    """Implements `respond.Wording` for one request."""

    def __init__(
        self,
        response: Response,
        generation: Generation,
        logprobs: LogprobFormatter | None,
        *,
        include_reasoning: bool,
    ) -> None:
        """`response` has the request's settings; the rest is filled in.

        Args:
            response: what is written.
            generation: what it says.
            logprobs: writes the log probabilities of the answer's tokens; None: there are none.
            include_reasoning: whether it has what the model thinks.
        """
        self.response = response
        self._generation = generation
        self._logprobs = logprobs
        self._hides_reasoning = not include_reasoning
        self._output = OutputItems(self._say)
        self._finish_reason = "abort"
        self._written: list[bytes] = []
        self._number = 0
        self._template: NumberedTemplate | None = None
        self._template_of: OpenItem | None = None

    def whole(self, choices: Sequence[FoldedChoice]) -> Response:
        """See `respond.Wording`."""
        (choice,) = choices
        logprobs = iter(choice.answer_logprobs)
        for event in choice.message.events():
            if isinstance(event, Text):
                self._add_logprobs(next(logprobs, None))
            self._add([event])
        self._finish_reason = choice.finish_reason
        self._finish(None)
        return self.response

    def begin(self) -> bytes:
        """See `respond.Wording`. Nothing the second time."""
        if self._number == 0:
            self._say(ResponseCreated(self.response))
            self._say(ResponseInProgress(self.response))
        return self._taken()

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        events = delta.events
        if self._logprobs is not None:
            self._add_logprobs(delta.answer_logprobs)
        elif len(events) == 1:
            item, (event,) = self._output.open, events
            if item is not None and isinstance(event, item.kind) and event.text:
                return self._next_text(item, event.text)
        self._add(events)
        return self._taken()

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.Wording`."""
        begun = self.begin()
        self._finish(failure)
        last = {"completed": ResponseCompleted, "incomplete": ResponseIncomplete}
        self._say(last.get(self.response.status, ResponseFailed)(self.response))
        return begun + self._taken()

    def _next_text(self, item: OpenItem, text: str) -> bytes:
        """The event of a text that continues `item`, which most events are."""
        if self._template is None or self._template_of is not item:
            self._template, self._template_of = NumberedTemplate(item.delta(HOLE)), item
        item.parts.append(text)
        self._number += 1
        return self._template.event(text, self._number - 1)

    def _add_logprobs(self, logprobs: Sequence[TokenLogprobs] | None) -> None:
        if logprobs and self._logprobs is not None:
            written = self._logprobs.chat(logprobs, self.response.top_logprobs)
            self._output.add_logprobs(written.content)

    def _add(self, events: Sequence[Event]) -> None:
        for event in events:
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
        usage = self._generation.usage
        return ResponseUsage(
            usage.prompt_tokens,
            InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            OutputTokensDetails(self._generation.num_reasoning_tokens),
            usage.total_tokens,
        )

    def _say(self, event: ResponseEvent) -> None:
        event.sequence_number = self._number
        self._number += 1
        self._written.append(named_event(event))

    def _taken(self) -> bytes:
        written, self._written = self._written, []
        return b"".join(written)
