"""How `/v2/chat` writes a response: as texts, thoughts and calls of tools."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import TEXTS, CallArguments, CallStart, Event, Reasoning, Text, joined
from pagemill.server.error_shapes import sentence
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
from pagemill.server.logprobs import FLOOR, TokenLogprobs
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.cohere_chat import (
    ArgumentsPiece,
    CallPiece,
    CohereChatRequest,
    CohereChatResponse,
    CohereUsage,
    ContentDelta,
    ContentDeltaDelta,
    ContentEnd,
    ContentPiece,
    ContentStart,
    ContentStartDelta,
    EndDelta,
    FinishReason,
    Function,
    GrownCall,
    GrownContent,
    LogprobItem,
    MessageEnd,
    MessageStart,
    StartDelta,
    StartedCall,
    StartedContent,
    TextContent,
    ThinkingContent,
    Tokens,
    ToolCall,
    ToolCallDelta,
    ToolCallDeltaDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolCallStartDelta,
    WrittenMessage,
)
from pagemill.server.protocol.usage import Usage
from pagemill.server.rendering import Renderer
from pagemill.server.respond import FoldedChoice
from pagemill.server.sse import HOLE, EventTemplate, named_event


class CohereWording:
    """Implements `respond.Wording` for one request, which has one choice."""

    def __init__(
        self, pipeline: Pipeline, request: CohereChatRequest, generation: Generation
    ) -> None:
        self._generation = generation
        self._renderer = pipeline.renderer
        self._id = request.request_id
        self._has_logprobs = request.logprobs
        self._parts = _PartStream()
        self._reason: FinishReason = "COMPLETE"
        # Of tokens that no event has had yet.
        self._logprobs: list[TokenLogprobs] = []

    def whole(self, choices: Sequence[FoldedChoice]) -> CohereChatResponse:
        """See `respond.Wording`."""
        (choice,) = choices
        message = choice.message
        content: list[TextContent | ThinkingContent] = []
        if message.reasoning:
            content.append(ThinkingContent(message.reasoning))
        if message.text:
            content.append(TextContent(message.text))
        calls = [
            ToolCall(_call_id(call.id), Function(call.name, call.arguments))
            for call in message.calls
        ]
        items = [_item(self._renderer, [entry]) for entry in choice.logprobs]
        return CohereChatResponse(
            self._id,
            _reason(choice.finish_reason, choice.stop_reason, bool(calls)),
            WrittenMessage(content, calls or UNSET),
            _usage(self._generation.usage),
            items if self._has_logprobs else UNSET,
            self._generation.kv_transfer_params or UNSET,
        )

    def begin(self) -> bytes:
        """See `respond.Wording`: the message, still empty."""
        return named_event(MessageStart(self._id, StartDelta(WrittenMessage([]))))

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        events = delta.events
        logprobs: LogprobItem | UnsetType = UNSET
        if self._has_logprobs:
            self._logprobs += delta.logprobs or ()
            if any(isinstance(written, Text | Reasoning) for written in events):
                logprobs = _item(self._renderer, self._logprobs)
                self._logprobs = []
        elif (
            len(events) == 1
            and delta.finish_reason is None
            and (written := self._parts.quick(events[0]))
        ):
            return written
        parts = self._parts.push(events, logprobs)
        if delta.finish_reason is not None:
            parts += self._parts.close()
            self._reason = _reason(delta.finish_reason, delta.stop_reason, self._parts.has_calls)
        return b"".join(parts)

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.Wording`."""
        generation = self._generation
        usage = _usage(generation.usage)
        if failure is not None:
            return named_event(MessageEnd(self._id, EndDelta("ERROR", usage, sentence(failure))))
        params = generation.kv_transfer_params or UNSET
        return named_event(MessageEnd(self._id, EndDelta(self._reason, usage), params))


class _PartStream:
    """Events of a stream to texts, thoughts and calls, of which one at most is open."""

    def __init__(self) -> None:
        self._num_contents = 0
        self._num_calls = 0
        self._kind: type[Event] | None = None  # of the events that the open part is made of
        self._template: EventTemplate | None = None  # for more of its text

    @property
    def has_calls(self) -> bool:
        """Whether a tool was called."""
        return self._num_calls > 0

    def quick(self, written: Event) -> bytes:
        """More of the open part; b"" if `push` has to take the event."""
        if self._template is None or type(written) is not self._kind:
            return b""
        assert isinstance(written, TEXTS)
        return self._template.event(written.text)

    def push(self, events: Sequence[Event], logprobs: LogprobItem | UnsetType) -> list[bytes]:
        """What the next events say; `logprobs` are said with the first text among them."""
        parts: list[bytes] = []
        for each in joined(events):
            if not isinstance(each, TEXTS):
                parts += self.close()
                if isinstance(each, CallStart):
                    parts.append(self._open_call(each))
                continue
            kind, text = type(each), each.text
            if kind is not self._kind:
                parts += self.close()
                parts.append(self._open_content(kind))
            if kind is CallArguments or logprobs is UNSET:
                parts.append(self._event(text))
                continue
            parts.append(named_event(_content_delta(kind, self._num_contents - 1, text, logprobs)))
            logprobs = UNSET
        return parts

    def close(self) -> list[bytes]:
        """The end of the open part, if there is one."""
        kind, self._kind, self._template = self._kind, None, None
        if kind is None:
            return []
        if kind is CallArguments:
            return [named_event(ToolCallEnd(self._num_calls - 1))]
        return [named_event(ContentEnd(self._num_contents - 1))]

    def _event(self, text: str) -> bytes:
        assert self._template is not None, "a part is open"
        return self._template.event(text)

    def _open_call(self, call: CallStart) -> bytes:
        index = self._num_calls
        self._num_calls += 1
        self._kind = CallArguments
        piece = ToolCallDeltaDelta(GrownCall(CallPiece(ArgumentsPiece(HOLE))))
        self._template = _template(ToolCallDelta(index, piece))
        begun = StartedCall(ToolCall(_call_id(call.id), Function(call.name, "")))
        return named_event(ToolCallStart(index, ToolCallStartDelta(begun)))

    def _open_content(self, kind: type[Event]) -> bytes:
        index = self._num_contents
        self._num_contents += 1
        self._kind = kind
        self._template = _template(_content_delta(kind, index, HOLE))
        content = ThinkingContent("") if kind is Reasoning else TextContent("")
        return named_event(ContentStart(index, ContentStartDelta(StartedContent(content))))


def _content_delta(
    kind: type[Event], index: int, text: str, logprobs: LogprobItem | UnsetType = UNSET
) -> ContentDelta:
    piece = ContentPiece(thinking=text) if kind is Reasoning else ContentPiece(text=text)
    return ContentDelta(index, ContentDeltaDelta(GrownContent(piece)), logprobs)


def _template(payload: msgspec.Struct) -> EventTemplate:
    return EventTemplate(payload, str(payload.__struct_config__.tag))


def _item(renderer: Renderer, entries: Sequence[TokenLogprobs]) -> LogprobItem:
    ids = [entry.token_id for entry in entries]
    text = b"".join(map(renderer.token_bytes, ids)).decode("utf-8", "replace")
    return LogprobItem(text, ids, [max(entry.logprob, FLOOR) for entry in entries])


def _reason(reason: str, stop: str | int | None, has_calls: bool) -> FinishReason:
    if reason == "length":
        return "MAX_TOKENS"
    if reason == "abort":
        return "ERROR"
    if isinstance(stop, str):
        return "STOP_SEQUENCE"
    return "TOOL_CALL" if has_calls else "COMPLETE"


def _usage(usage: Usage) -> CohereUsage:
    tokens = Tokens(usage.prompt_tokens, usage.completion_tokens)
    return CohereUsage(tokens, tokens, usage.prompt_tokens_details.cached_tokens)


def _call_id(model_id: str) -> str:
    return model_id or f"call_{uuid.uuid4().hex}"
