"""How `/v1/messages` writes a response: as blocks of text, thinking and calls of tools."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import TEXTS, CallArguments, CallStart, Event, Reasoning, Text, joined
from pagemill.server.error_shapes import ANTHROPIC
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.messages import (
    BlockDelta,
    BlockDeltaEvent,
    BlockStart,
    BlockStop,
    InputJsonDelta,
    MessageDelta,
    MessagesRequest,
    MessagesResponse,
    MessageStart,
    MessageStop,
    MessageUsage,
    SignatureDelta,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    WrittenBlock,
    WrittenThinking,
    WrittenToolUse,
)
from pagemill.server.protocol.usage import Usage
from pagemill.server.respond import FoldedChoice
from pagemill.server.sse import HOLE, EventTemplate, event, failed_stream

_DELTA = "content_block_delta"
_NO_INPUT = msgspec.Raw(b"{}")
_encode = msgspec.json.Encoder().encode


class MessagesWording:
    """Implements `respond.Wording` for one request, which has one choice."""

    def __init__(
        self, pipeline: Pipeline, request: MessagesRequest, generation: Generation
    ) -> None:
        self._generation = generation
        self._max_tokens = request.max_tokens
        self._max_model_len = pipeline.model.max_model_len
        self._id = f"msg_{request.request_id}"
        self._model = pipeline.model.name
        thinking = request.thinking
        self._shows_thinking = thinking is None or thinking.display != "omitted"
        self._blocks = _BlockStream(self._shows_thinking)
        self._stop = Stop("end_turn", None)

    def whole(self, choices: Sequence[FoldedChoice]) -> MessagesResponse:
        """See `respond.Wording`."""
        (choice,) = choices
        message = choice.message
        content: list[WrittenBlock] = []
        if message.reasoning:
            thinking = message.reasoning if self._shows_thinking else ""
            content.append(WrittenThinking(thinking, _signature()))
        if message.text:
            content.append(TextBlock(message.text))
        for call in message.calls:
            text = call_input(call.arguments)
            content.append(WrittenToolUse(_call_id(call.id), call.name, text))
        stop = self._stopped(choice.finish_reason, choice.stop_reason, bool(message.calls))
        return MessagesResponse(
            self._id,
            self._model,
            content,
            _usage(self._generation.usage),
            stop_reason=stop.stop_reason,
            stop_sequence=stop.stop_sequence,
            kv_transfer_params=self._generation.kv_transfer_params or UNSET,
        )

    def begin(self) -> bytes:
        """See `respond.Wording`: the message, still empty."""
        usage = _usage(self._generation.prompt_usage)
        return _event(MessageStart(MessagesResponse(self._id, self._model, [], usage)))

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        events = delta.events
        if delta.finish_reason is None:
            if not events:
                return b""
            if len(events) == 1 and (written := self._blocks.quick(events[0])):
                return written
        parts = self._blocks.push(events)
        if delta.finish_reason is not None:
            parts += self._blocks.close()
            self._stop = self._stopped(
                delta.finish_reason, delta.stop_reason, self._blocks.has_calls
            )
        return b"".join(parts)

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.Wording`."""
        if failure is not None:
            return failed_stream(failure, ANTHROPIC)
        generation = self._generation
        params = generation.kv_transfer_params or UNSET
        last = MessageDelta(self._stop, _usage(generation.usage), params)
        return _event(last) + _event(MessageStop())

    def _stopped(self, reason: str, stop: str | int | None, has_calls: bool) -> Stop:
        if reason == "length":
            usage = self._generation.usage
            ran_out = usage.total_tokens >= self._max_model_len
            if ran_out and usage.completion_tokens < self._max_tokens:
                return Stop("model_context_window_exceeded", None)
            return Stop("max_tokens", None)
        if isinstance(stop, str):
            return Stop("stop_sequence", stop)
        return Stop("tool_use" if has_calls else "end_turn", None)


class _BlockStream:
    """Events of a stream to blocks, of which one at most is open."""

    def __init__(self, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._index = -1
        self._kind: type[Event] | None = None  # of the events that the open block is made of
        self._template: EventTemplate | None = None  # for more of its text, if that goes out
        self._held: list[str] = []  # arguments that are not an object
        self.has_calls = False

    def quick(self, written: Event) -> bytes:
        """More text of the open block; b"" if `push` has to take the event."""
        if self._template is None or type(written) is not self._kind:
            return b""
        assert isinstance(written, TEXTS)
        return self._template.event(written.text)

    def push(self, events: Sequence[Event]) -> list[bytes]:
        """What the next events say."""
        parts: list[bytes] = []
        for each in joined(events):
            if isinstance(each, TEXTS):
                parts += self._push_text(type(each), each.text)
                continue
            parts += self.close()
            if isinstance(each, CallStart):
                self.has_calls = True
                block = WrittenToolUse(_call_id(each.id), each.name, _NO_INPUT)
                parts.append(self._open(CallArguments, block))
        return parts

    def close(self) -> list[bytes]:
        """The end of the open block, if there is one."""
        kind, self._kind = self._kind, None
        if kind is None:
            return []
        last: BlockDelta | None = None
        if kind is Reasoning:
            last = SignatureDelta(_signature())
        elif kind is CallArguments and self._template is None:
            last = InputJsonDelta(bytes(call_input("".join(self._held))).decode())
        parts = [] if last is None else [_event(BlockDeltaEvent(self._index, last))]
        self._held, self._template = [], None
        return [*parts, _event(BlockStop(self._index))]

    def _push_text(self, kind: type[Event], text: str) -> list[bytes]:
        parts: list[bytes] = []
        if kind is not self._kind:
            parts += self.close()
            block = WrittenThinking("", "") if kind is Reasoning else TextBlock("")
            parts.append(self._open(kind, block))
            if kind is Text:
                self._template = self._delta(TextDelta(HOLE))
            elif self._shows_thinking:
                self._template = self._delta(ThinkingDelta(HOLE))
        if kind is CallArguments and self._template is None:
            if self._held or not text.lstrip().startswith("{"):
                self._held.append(text)
            else:
                self._template = self._delta(InputJsonDelta(HOLE))
        if self._template is not None:
            parts.append(self._template.event(text))
        return parts

    def _open(self, kind: type[Event], block: WrittenBlock) -> bytes:
        self._kind = kind
        self._index += 1
        return _event(BlockStart(self._index, block))

    def _delta(self, delta: BlockDelta) -> EventTemplate:
        return EventTemplate(BlockDeltaEvent(self._index, delta), _DELTA)


def call_input(arguments: str) -> msgspec.Raw:
    """A call's input, which is an object: if the model wrote none, one that holds what it wrote."""
    if not arguments.strip():
        return _NO_INPUT
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(_encode({"INVALID_JSON": arguments}))
    return msgspec.Raw(arguments.encode())


def _event(payload: msgspec.Struct) -> bytes:
    return event(_encode(payload), str(payload.__struct_config__.tag))


def _usage(usage: Usage) -> MessageUsage:
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(usage.prompt_tokens - cached, usage.completion_tokens, cached)


def _call_id(model_id: str) -> str:
    return model_id or f"toolu_{uuid.uuid4().hex}"


def _signature() -> str:
    """Clients send a signature back with the thinking; here it has no meaning, and is not empty."""
    return uuid.uuid4().hex
