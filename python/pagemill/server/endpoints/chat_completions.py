"""`POST /v1/chat/completions`."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from pagemill.engine.assembly import ChoiceDelta
from pagemill.server.answer import Answer, Events
from pagemill.server.caller import Caller
from pagemill.server.errors import bad_request, not_implemented
from pagemill.server.generation import Generation
from pagemill.server.logprobs import LogprobFormatter
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.chat import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    ChoiceLogprobs,
    check_messages,
)
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.sse import event
from pagemill.server.state import ServerState
from pagemill.server.streaming import guarded, usage_events

ROLE = "assistant"


async def create(server: ServerState, body: ChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages."""
    pipeline, _ = server.models.resolve(body.model)
    generation = await _start(pipeline, body, caller)
    chat = _Chat(pipeline, body, f"chatcmpl-{body.request_id}", generation)
    if body.stream:
        events = chat.events(max(server.config.stream_interval, body.stream_interval))
        return Events(guarded(events), chat.close)
    try:
        return await chat.collect()
    finally:
        chat.close()


async def _start(pipeline: Pipeline, asked: ChatRequest, caller: Caller) -> Generation:
    """Renders and submits.

    Raises:
        ApiError: the request cannot be served.
    """
    _check(asked)
    pipeline.check_choices(1, asked.n)
    sampling = to_sampling(
        asked,
        logprobs=asked.top_logprobs if asked.logprobs else None,
        prompt_logprobs=asked.prompt_logprobs,
        max_logprobs=pipeline.model.max_logprobs,
        logprobs_param="top_logprobs",
    )
    render = functools.partial(
        pipeline.renderer.render_chat,
        asked.messages,
        asked.tools or None,
        asked.add_generation_prompt,
        asked.continue_final_message,
        _template_variables(asked),
    )
    token_ids = await pipeline.rendering.chat(render, asked.add_special_tokens)
    requested, requested_param = asked.max_completion_tokens, "max_completion_tokens"
    if requested is None:
        requested, requested_param = asked.max_tokens, "max_tokens"
    options = GenerationOptions(
        max_tokens=requested,
        max_tokens_param=requested_param,
        default_max_tokens=pipeline.model.defaults.max_tokens,
        truncate_prompt_tokens=asked.truncate_prompt_tokens,
        truncation_side=asked.truncation_side,
        cache_salt=asked.cache_salt or "",
        priority=asked.priority,
        tenant=caller.tenant,
        param="messages",
    )
    return await pipeline.generate([token_ids], sampling, options)


def _check(asked: ChatRequest) -> None:
    check_messages(asked.messages)
    if asked.tools and asked.tool_choice != "none":
        raise not_implemented(
            "`tools` is not supported: calls are not parsed in this version. With"
            ' `tool_choice: "none"` the model is shown the tools and answers in text.',
            "tools",
        )
    if asked.tool_choice not in (None, "none", "auto"):
        raise not_implemented("`tool_choice` can only be `none` in this version.", "tool_choice")
    if asked.top_logprobs and not asked.logprobs:
        raise bad_request("`top_logprobs` needs `logprobs: true`.", "top_logprobs")
    if asked.prompt_logprobs is not None and asked.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
    in_kwargs = "chat_template" in asked.chat_template_kwargs
    if asked.chat_template is not None or in_kwargs:
        field = "chat_template_kwargs" if in_kwargs else "chat_template"
        raise bad_request(
            f"`{field}` cannot bring a template with a request: it would run on the server. Start"
            " the server with --chat-template.",
            field,
        )
    if asked.continue_final_message and asked.add_generation_prompt:
        raise bad_request(
            "`continue_final_message` and `add_generation_prompt` exclude each other: set"
            " `add_generation_prompt: false`.",
            "continue_final_message",
        )


def _template_variables(asked: ChatRequest) -> dict[str, Any]:
    variables = dict(asked.chat_template_kwargs)
    if asked.documents is not None:
        variables["documents"] = asked.documents
    if asked.reasoning_effort is not None:
        variables["reasoning_effort"] = asked.reasoning_effort
    return variables


class _Chat:
    """One request being answered."""

    def __init__(
        self, pipeline: Pipeline, asked: ChatRequest, name: str, generation: Generation
    ) -> None:
        self._asked = asked
        self._name = name
        self._model = pipeline.model.name
        self._created = int(time.time())
        self._generation = generation
        self._formatter = LogprobFormatter(pipeline.renderer, asked.return_tokens_as_token_ids)
        last = asked.messages[-1]
        echoed = last.get("content") if asked.echo and last.get("role") == ROLE else None
        self._echo = echoed if isinstance(echoed, str) else ""

    def close(self) -> None:
        """Aborts what has not finished."""
        self._generation.close()

    async def collect(self) -> ChatResponse:
        """The complete response."""
        asked, count = self._asked, self._generation.num_choices
        texts = [[self._echo] for _ in range(count)]
        token_ids: list[list[int]] = [[] for _ in range(count)]
        logprobs = [ChoiceLogprobs([]) if asked.logprobs else None for _ in range(count)]
        ended: list[tuple[str, str | int | None]] = [("abort", None)] * count
        prompt_logprobs = None
        async for deltas in self._generation.deltas():
            for delta in deltas:
                texts[delta.index].append(delta.text)
                token_ids[delta.index] += delta.token_ids
                part, whole = self._logprobs(delta), logprobs[delta.index]
                if part is not None and whole is not None:
                    whole.content += part.content
                if delta.prompt_logprobs is not None:
                    prompt_logprobs = self._formatter.prompt(delta.prompt_logprobs)
                if delta.finish_reason is not None:
                    ended[delta.index] = (delta.finish_reason, delta.stop_reason)
        choices = [
            ChatChoice(
                index=i,
                message=ChatMessage(ROLE, "".join(texts[i])),
                logprobs=logprobs[i],
                finish_reason=ended[i][0],
                stop_reason=ended[i][1],
                token_ids=token_ids[i] if asked.return_token_ids else UNSET,
            )
            for i in range(count)
        ]
        return ChatResponse(
            id=self._name,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=self._generation.usage,
            prompt_logprobs=prompt_logprobs,
            prompt_token_ids=self._prompt_token_ids(),
        )

    async def events(self, interval: int) -> AsyncGenerator[bytes, None]:
        """The stream's events of `interval` tokens each, without the `[DONE]`."""
        encode = msgspec.json.Encoder().encode
        final_usage, continuous_usage = usage_events(self._asked.stream_options)
        chunk = ChatChunk(self._name, self._created, self._model, [])
        begun = False
        async for deltas in self._generation.deltas(interval):
            events: list[bytes] = []
            for delta in deltas:
                if not begun:
                    begun = True
                    events += [event(encode(role)) for role in self._role_chunks(continuous_usage)]
                choice = self._chunk_choice(delta)
                if delta.text or delta.finish_reason or choice.logprobs or choice.token_ids:
                    chunk.choices = [choice]
                    if continuous_usage:
                        chunk.usage = self._generation.usage
                    events.append(event(encode(chunk)))
            if events:
                yield b"".join(events)
        if final_usage:
            chunk.choices, chunk.usage = [], self._generation.usage
            yield event(encode(chunk))

    def _role_chunks(self, with_usage: bool) -> Iterator[ChatChunk]:
        for index in range(self._generation.num_choices):
            yield ChatChunk(
                self._name,
                self._created,
                self._model,
                [ChatChunkChoice(index, ChatDelta(ROLE, self._echo))],
                usage=self._generation.prompt_usage if with_usage else UNSET,
                prompt_token_ids=self._prompt_token_ids(),
            )

    def _chunk_choice(self, delta: ChoiceDelta) -> ChatChunkChoice:
        return ChatChunkChoice(
            delta.index,
            ChatDelta(content=delta.text),
            None if delta.logprobs is None else self._logprobs(delta),
            delta.finish_reason,
            UNSET if delta.finish_reason is None else delta.stop_reason,
            delta.token_ids if self._asked.return_token_ids else UNSET,
        )

    def _logprobs(self, delta: ChoiceDelta) -> ChoiceLogprobs | None:
        if not self._asked.logprobs or not delta.logprobs:
            return None
        return self._formatter.chat(delta.logprobs, self._asked.top_logprobs)

    def _prompt_token_ids(self) -> Any:
        return self._generation.prompts[0].tolist() if self._asked.return_token_ids else UNSET
