"""How `/v1/chat/completions` writes a response."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from pagemill.render.assembly import ChoiceDelta
from pagemill.render.events import CallArguments, CallEnd, CallStart, Event, Reasoning, Text
from pagemill.server.errors import ApiError
from pagemill.server.logprobs import LogprobFormatter, TokenLogprobs
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import (
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    ChoiceLogprobs,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from pagemill.server.respond import FoldedChoice, Generated
from pagemill.server.routed_experts import RoutedExpertsFormatter
from pagemill.server.sse import HOLE, EventTemplate, event, last_events, usage_events

ROLE = "assistant"
_TEXTS = (Text, Reasoning, CallArguments)


class ChatWording:
    """Implements `respond.Wording` for one request."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: ChatRequest,
        name: str,
        generation: Generated,
        has_metrics: bool = False,
    ) -> None:
        """`has_metrics`: the response says where its time went."""
        self._request = request
        self._generation = generation
        self._formatter = LogprobFormatter(pipeline.renderer, request.return_tokens_as_token_ids)
        self._experts = RoutedExpertsFormatter(
            pipeline.engine.model.routed_experts, request.routed_experts_prompt_start
        )
        self._has_metrics = has_metrics
        self._final_usage, self._continuous_usage = usage_events(request.stream_options)
        self._chunk = ChatChunk(
            name,
            int(time.time()),
            pipeline.model.name,
            [],
            system_fingerprint=pipeline.model.fingerprint,
        )
        self._encode = msgspec.json.Encoder().encode
        self._num_calls = [0] * generation.num_choices
        # Then events of one kind differ in their text only.
        self._is_plain = not (
            request.logprobs or request.return_token_ids or self._continuous_usage
        )
        # Who names a function knows that it is called.
        self._is_named = isinstance(request.tool_choice, dict) and (
            request.tool_choice.get("type") == "function"
        )
        self._hides_reasoning = not request.include_reasoning
        self._templates: dict[tuple[int, type[Event], int], EventTemplate] = {}
        last = request.messages[-1]
        echoed = last.get("content") if request.echo and last.get("role") == ROLE else None
        self._echo = echoed if isinstance(echoed, str) else ""

    def whole(self, choices: Sequence[FoldedChoice]) -> ChatResponse:
        """See `respond.Wording`."""
        prompt_logprobs = choices[0].prompt_logprobs
        return ChatResponse(
            id=self._chunk.id,
            created=self._chunk.created,
            model=self._chunk.model,
            choices=[self._choice(choice) for choice in choices],
            usage=self._generation.usage,
            system_fingerprint=self._chunk.system_fingerprint,
            prompt_logprobs=(
                None if prompt_logprobs is None else self._formatter.prompt(prompt_logprobs)
            ),
            prompt_token_ids=self._prompt_token_ids(),
            kv_transfer_params=self._generation.kv_transfer_params or UNSET,
            metrics=self._generation.timings if self._has_metrics else UNSET,
        )

    def begin(self) -> bytes:
        """See `respond.Wording`: each choice's role."""
        usage = self._generation.prompt_usage if self._continuous_usage else UNSET
        ids = self._prompt_token_ids()
        chunk = msgspec.structs.replace(self._chunk, usage=usage, prompt_token_ids=ids)
        events: list[bytes] = []
        for index in range(self._generation.num_choices):
            chunk.choices = [ChatChunkChoice(index, ChatDelta(ROLE, self._echo))]
            events.append(event(self._encode(chunk)))
        return b"".join(events)

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        events = delta.events
        if self._hides_reasoning:
            events = [written for written in events if not isinstance(written, Reasoning)]
        if self._is_plain and delta.finish_reason is None:
            if not events:
                return b""
            if len(events) == 1 and isinstance(events[0], _TEXTS):
                return self._template(delta.index, events[0]).event(events[0].text)
        choice = ChatChunkChoice(
            delta.index,
            self._chat_delta(delta.index, events),
            self._logprobs(delta.logprobs),
            self._finish_reason(delta.index, delta.finish_reason),
            UNSET if delta.finish_reason is None else delta.stop_reason,
            delta.token_ids if self._request.return_token_ids else UNSET,
            self._experts.text(delta.routed_experts),
        )
        if not (events or choice.finish_reason or choice.logprobs or choice.token_ids):
            return b""  # tokens that are not a complete character yet, or may be a stop string
        self._chunk.choices = [choice]
        if self._continuous_usage:
            self._chunk.usage = self._generation.usage
        if delta.finish_reason is not None:
            self._chunk.kv_transfer_params = self._generation.kv_transfer_params or UNSET
        return event(self._encode(self._chunk))

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.Wording`."""
        if not self._final_usage:
            return last_events(None, failure)
        self._chunk.choices, self._chunk.usage = [], self._generation.usage
        if self._has_metrics:
            self._chunk.metrics = self._generation.timings
        return last_events(self._chunk, failure)

    def _template(self, index: int, written: Text | Reasoning | CallArguments) -> EventTemplate:
        key = (index, type(written), self._num_calls[index])
        template = self._templates.get(key)
        if template is None:
            delta = self._chat_delta(index, [msgspec.structs.replace(written, text=HOLE)])
            chunk = msgspec.structs.replace(self._chunk, choices=[ChatChunkChoice(index, delta)])
            template = self._templates[key] = EventTemplate(chunk)
        return template

    def _chat_delta(self, index: int, events: Sequence[Event]) -> ChatDelta:
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCallDelta] = []
        for each in events:
            match each:
                case Text():
                    content.append(each.text)
                case Reasoning():
                    reasoning.append(each.text)
                case CallStart():
                    function = FunctionDelta(each.name)
                    number = self._num_calls[index]
                    calls.append(ToolCallDelta(number, function, _call_id(each.id), "function"))
                    self._num_calls[index] += 1
                case CallArguments():
                    if not calls:
                        number = self._num_calls[index] - 1
                        calls.append(ToolCallDelta(number, FunctionDelta()))
                    calls[-1].function.arguments += each.text
                case CallEnd():
                    pass
        delta = ChatDelta()
        if reasoning:
            delta.reasoning = "".join(reasoning)
        if calls:
            delta.tool_calls = calls
        if content or not (reasoning or calls):
            delta.content = "".join(content)
        return delta

    def _choice(self, choice: FoldedChoice) -> ChatChoice:
        index, message = choice.index, choice.message
        self._num_calls[index] = len(message.calls)
        text = self._echo + message.text
        written = ChatMessage(ROLE, text if text or not message.calls else None)
        if message.reasoning and not self._hides_reasoning:
            written.reasoning = message.reasoning
        if message.calls:
            written.tool_calls = [
                ToolCall(_call_id(call.id), CalledFunction(call.name, call.arguments))
                for call in message.calls
            ]
        logprobs = ChoiceLogprobs([]) if self._request.logprobs else None
        return ChatChoice(
            index=index,
            message=written,
            logprobs=self._logprobs(choice.logprobs) or logprobs,
            finish_reason=self._finish_reason(index, choice.finish_reason) or "abort",
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if self._request.return_token_ids else UNSET,
            routed_experts=self._experts.text(choice.routed_experts),
        )

    def _finish_reason(self, index: int, reason: str | None) -> str | None:
        if reason == "stop" and self._num_calls[index] and not self._is_named:
            return "tool_calls"
        return reason

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> ChoiceLogprobs | None:
        if not self._request.logprobs or not entries:
            return None
        has_chosen = bool(self._request.logprob_token_ids)
        return self._formatter.chat(entries, -1 if has_chosen else self._request.top_logprobs)

    def _prompt_token_ids(self) -> list[int] | UnsetType:
        return self._generation.prompts[0].tolist() if self._request.return_token_ids else UNSET


def _call_id(model_id: str) -> str:
    return model_id or f"chatcmpl-tool-{uuid.uuid4().hex}"
