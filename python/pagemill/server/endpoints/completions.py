"""`POST /v1/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from pagemill.engine.assembly import ChoiceDelta
from pagemill.server.admission import read_body, tenant_of
from pagemill.server.disconnect import until_disconnect
from pagemill.server.errors import bad_request
from pagemill.server.logprobs import CompletionLogprobWriter, LogprobFormatter
from pagemill.server.pipeline import Generation, GenerationOptions, Pipeline
from pagemill.server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    RULES,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    prompts,
)
from pagemill.server.protocol.decode import decode_request
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.sse import EventStream, event
from pagemill.server.state import state_of
from pagemill.server.streaming import guarded


async def create(request: Request) -> Response:
    """Continues one or several prompts."""
    state = state_of(request)
    body = await read_body(request, state.config.max_body_bytes)
    asked = decode_request(body, CompletionRequest, RULES)
    pipeline = state.pipeline
    pipeline.model.check_name(asked.model)
    pipeline.model.check_generates()
    completion = await _Completion.start(
        pipeline, asked, f"cmpl-{asked.request_id or request.state.request_id}", request
    )
    if asked.stream:
        return EventStream(guarded(completion.events()), completion.close)
    try:
        response = await until_disconnect(completion.collect(), request.receive)
    finally:
        completion.close()
    return Response(msgspec.json.encode(response), media_type="application/json")


class _Completion:
    """One request being answered."""

    def __init__(
        self,
        pipeline: Pipeline,
        asked: CompletionRequest,
        name: str,
        generation: Generation,
        texts: list[str],
    ) -> None:
        self._asked = asked
        self._head = CompletionResponse(name, int(time.time()), pipeline.model.name, [])
        self._encoder = msgspec.json.Encoder()
        self._generation = generation
        self._texts = texts  # what echo says, one per prompt
        self._formatter = LogprobFormatter(pipeline.renderer, asked.return_tokens_as_token_ids)
        self._writers = [
            CompletionLogprobWriter(self._formatter) for _ in range(generation.num_choices)
        ]
        self._started: set[int] = set()

    @classmethod
    async def start(
        cls, pipeline: Pipeline, asked: CompletionRequest, name: str, request: Request
    ) -> _Completion:
        """Renders and submits.

        Raises:
            ApiError: the request cannot be served.
        """
        if asked.prompt_logprobs is not None and asked.stream:
            raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
        if asked.max_tokens == 0 and not asked.echo:
            raise bad_request("`max_tokens` must be at least 1 unless `echo` is set.", "max_tokens")
        prompt_logprobs = asked.prompt_logprobs
        if asked.echo and prompt_logprobs is None:
            # The engine scores a prompt without generating only for the sake of its logprobs.
            prompt_logprobs = 0 if asked.max_tokens == 0 else None
            prompt_logprobs = asked.logprobs if asked.logprobs is not None else prompt_logprobs
        sampling = to_sampling(
            asked,
            logprobs=asked.logprobs,
            prompt_logprobs=prompt_logprobs,
            max_logprobs=pipeline.model.max_logprobs,
        )
        token_ids, texts = await _render(pipeline, asked, request.receive)
        options = GenerationOptions(
            max_tokens=asked.max_tokens,
            default_max_tokens=DEFAULT_MAX_TOKENS,
            truncate_prompt_tokens=asked.truncate_prompt_tokens,
            cache_salt=asked.cache_salt or "",
            priority=asked.priority,
            tenant=tenant_of(request),
        )
        generation = pipeline.generate(token_ids, sampling, options)
        return cls(pipeline, asked, name, generation, texts)

    def close(self) -> None:
        """Aborts what has not finished."""
        self._generation.close()

    async def collect(self) -> CompletionResponse:
        """The complete response."""
        choices = [CompletionChoice(i, "") for i in range(self._generation.num_choices)]
        texts: list[list[str]] = [[] for _ in choices]
        async for deltas in self._generation.deltas():
            for delta in deltas:
                part, whole = self._choice(delta), choices[delta.index]
                texts[delta.index].append(part.text)
                _extend_logprobs(whole, part.logprobs)
                whole.finish_reason, whole.stop_reason = part.finish_reason, part.stop_reason
                if part.token_ids is not UNSET:
                    seen = [] if whole.token_ids is UNSET else whole.token_ids
                    whole.token_ids = seen + part.token_ids
                if part.prompt_token_ids is not UNSET:
                    whole.prompt_token_ids = part.prompt_token_ids
                if delta.prompt_logprobs is not None and self._asked.prompt_logprobs is not None:
                    whole.prompt_logprobs = self._formatter.prompt(delta.prompt_logprobs)
        for choice, parts in zip(choices, texts, strict=True):
            choice.text = "".join(parts)
        return msgspec.structs.replace(self._head, choices=choices, usage=self._generation.usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream's events, without the `[DONE]`."""
        asked, encode = self._asked, self._encoder.encode
        stream_options = asked.stream_options
        continuous = stream_options is not None and stream_options.continuous_usage_stats
        head = msgspec.structs.replace(self._head)
        async for deltas in self._generation.deltas():
            events: list[bytes] = []
            for delta in deltas:
                choice = self._choice(delta)
                if not (choice.text or choice.finish_reason or choice.logprobs or choice.token_ids):
                    continue  # tokens that are no complete character yet, or may be a stop string
                head.choices = [choice]
                if continuous:
                    head.usage = self._generation.usage
                events.append(event(encode(head)))
            if events:
                yield b"".join(events)
        if stream_options is not None and stream_options.include_usage:
            head.choices, head.usage = [], self._generation.usage
            yield event(encode(head))

    def _choice(self, delta: ChoiceDelta) -> CompletionChoice:
        asked = self._asked
        choice = CompletionChoice(
            delta.index, delta.text, None, delta.finish_reason, delta.stop_reason
        )
        first = delta.index not in self._started
        if first:
            self._started.add(delta.index)
            if asked.echo:
                choice.text = self._texts[delta.index // self._generation.sampling.n] + delta.text
        prompt = self._generation.prompt_of(delta.index)
        if asked.logprobs is not None:
            entries = list(delta.logprobs or [])
            echoed = first and asked.echo
            if echoed:
                entries = list(delta.prompt_logprobs or []) + entries
            choice.logprobs = self._writers[delta.index].write(
                int(prompt[0]) if echoed else None, entries
            )
        if asked.return_token_ids:
            choice.token_ids = delta.token_ids
            if first:
                choice.prompt_token_ids = prompt.tolist()
        return choice


async def _render(
    pipeline: Pipeline, asked: CompletionRequest, receive: Receive
) -> tuple[list[list[int]], list[str]]:
    """Token ids of the prompts, and their texts if they are echoed."""
    asked_prompts = prompts(asked.prompt)
    pipeline.check_choices(len(asked_prompts), asked.n)
    token_ids = await pipeline.rendering.token_ids(
        asked_prompts, asked.add_special_tokens, asked.parse_special, "prompt", receive
    )
    texts: list[str] = []
    for prompt, ids in zip(asked_prompts, token_ids, strict=True) if asked.echo else ():
        text = prompt
        if not isinstance(text, str) or asked.truncate_prompt_tokens is not None:
            known = [i for i in ids if 0 <= i < pipeline.model.vocab_size]
            text = await pipeline.rendering.decode(known, asked.skip_special_tokens)
        texts.append(text)
    return token_ids, texts


def _extend_logprobs(whole: CompletionChoice, part: CompletionLogprobs | None) -> None:
    if part is None:
        return
    if whole.logprobs is None:
        whole.logprobs = part
        return
    whole.logprobs.text_offset += part.text_offset
    whole.logprobs.token_logprobs += part.token_logprobs
    whole.logprobs.tokens += part.tokens
    whole.logprobs.top_logprobs += part.top_logprobs
