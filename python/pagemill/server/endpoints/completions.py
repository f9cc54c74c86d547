"""`POST /v1/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import msgspec
from msgspec import UNSET

from pagemill.engine.assembly import ChoiceDelta
from pagemill.server.answer import Answer, Events
from pagemill.server.caller import Caller
from pagemill.server.echo import echoed_texts, prompt_offsets
from pagemill.server.errors import bad_request
from pagemill.server.generation import Generation
from pagemill.server.logprobs import LogprobFormatter
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    prompts,
)
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.sse import event
from pagemill.server.state import ServerState
from pagemill.server.streaming import guarded, usage_events


async def create(server: ServerState, body: CompletionRequest, caller: Caller) -> Answer:
    """Continues one or several prompts."""
    pipeline, _ = server.models.resolve(body.model)
    completion = await _Completion.start(pipeline, body, f"cmpl-{body.request_id}", caller)
    if body.stream:
        events = completion.events(max(server.config.stream_interval, body.stream_interval))
        return Events(guarded(events), completion.close)
    try:
        return await completion.collect()
    finally:
        completion.close()


class _Completion:
    """One request being answered."""

    def __init__(
        self,
        pipeline: Pipeline,
        asked: CompletionRequest,
        name: str,
        generation: Generation,
    ) -> None:
        self._asked = asked
        self._head = CompletionResponse(name, int(time.time()), pipeline.model.name, [])
        self._encoder = msgspec.json.Encoder()
        self._generation = generation
        self._renderer = pipeline.renderer
        self._echoes: list[str] = []  # one per prompt, if `echo` is set
        self._formatter = LogprobFormatter(pipeline.renderer, asked.return_tokens_as_token_ids)
        self._started: set[int] = set()

    @classmethod
    async def start(
        cls, pipeline: Pipeline, asked: CompletionRequest, name: str, caller: Caller
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
        token_ids, texts = await _render(pipeline, asked)
        options = GenerationOptions(
            max_tokens=asked.max_tokens,
            default_max_tokens=DEFAULT_MAX_TOKENS,
            truncate_prompt_tokens=asked.truncate_prompt_tokens,
            truncation_side=asked.truncation_side,
            cache_salt=asked.cache_salt or "",
            priority=asked.priority,
            tenant=caller.tenant,
        )
        generation = await pipeline.generate(token_ids, sampling, options)
        completion = cls(pipeline, asked, name, generation)
        if asked.echo:
            try:
                completion._echoes = await echoed_texts(
                    pipeline.rendering, texts, token_ids, generation.prompts
                )
            except BaseException:
                completion.close()
                raise
        return completion

    def close(self) -> None:
        """Aborts what has not finished."""
        self._generation.close()

    async def collect(self) -> CompletionResponse:
        """The complete response."""
        choices = [
            CompletionChoice(i, "", prompt_logprobs=None)
            for i in range(self._generation.num_choices)
        ]
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

    async def events(self, interval: int) -> AsyncGenerator[bytes, None]:
        """The stream's events of `interval` tokens each, without the `[DONE]`."""
        encode = self._encoder.encode
        final_usage, continuous_usage = usage_events(self._asked.stream_options)
        head = msgspec.structs.replace(self._head)
        async for deltas in self._generation.deltas(interval):
            events: list[bytes] = []
            for delta in deltas:
                choice = self._choice(delta)
                if not (choice.text or choice.finish_reason or choice.logprobs or choice.token_ids):
                    continue  # tokens that are no complete character yet, or may be a stop string
                head.choices = [choice]
                if continuous_usage:
                    head.usage = self._generation.usage
                events.append(event(encode(head)))
            if events:
                yield b"".join(events)
        if final_usage:
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
                choice.text = self._echo_of(delta.index) + delta.text
            if asked.return_token_ids:
                choice.prompt_token_ids = self._generation.prompt_of(delta.index).tolist()
        if asked.logprobs is not None:
            choice.logprobs = self._logprobs(delta, first)
        if asked.return_token_ids:
            choice.token_ids = delta.token_ids
        return choice

    def _echo_of(self, index: int) -> str:
        return self._echoes[index // self._generation.sampling.n] if self._asked.echo else ""

    def _logprobs(self, delta: ChoiceDelta, first: bool) -> CompletionLogprobs:
        entries, echoed = delta.logprobs or [], self._echo_of(delta.index)
        offsets = [len(echoed) + offset for offset in delta.offsets]
        if not (first and self._asked.echo):
            return self._formatter.completion(entries, offsets)
        prompt = self._generation.prompt_of(delta.index).tolist()
        return self._formatter.completion(
            (delta.prompt_logprobs or []) + entries,
            prompt_offsets(self._renderer, prompt, echoed) + offsets,
            prompt[0],
        )


async def _render(
    pipeline: Pipeline, asked: CompletionRequest
) -> tuple[list[list[int]], list[str | None]]:
    """Token ids of the prompts, and their texts if they came as text."""
    asked_prompts = prompts(asked.prompt)
    pipeline.check_choices(len(asked_prompts), asked.n)
    token_ids = await pipeline.rendering.token_ids(
        asked_prompts, asked.add_special_tokens, asked.parse_special, "prompt"
    )
    texts = [prompt if isinstance(prompt, str) else None for prompt in asked_prompts]
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
