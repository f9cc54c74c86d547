"""How `/v1/completions` writes a response."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from pagemill.render.assembly import ChoiceDelta
from pagemill.server.echo import prompt_offsets
from pagemill.server.errors import ApiError
from pagemill.server.logprobs import LogprobFormatter, TokenLogprobs
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.completion import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
)
from pagemill.server.respond import FoldedChoice, Generated
from pagemill.server.routed_experts import RoutedExpertsFormatter
from pagemill.server.sse import HOLE, EventTemplate, event, last_events, usage_events


class CompletionWording:
    """Implements `respond.Wording` for one request."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: CompletionRequest,
        name: str,
        generation: Generated,
        echoes: Sequence[str] = (),
        has_metrics: bool = False,
    ) -> None:
        """`echoes`: the text of each prompt, if `echo` is set. `has_metrics`: the response says
        where its time went."""
        self._has_metrics = has_metrics
        self._request = request
        self._generation = generation
        self._renderer = pipeline.renderer
        self._formatter = LogprobFormatter(pipeline.renderer, request.return_tokens_as_token_ids)
        self._experts = RoutedExpertsFormatter(
            pipeline.engine.model.routed_experts, request.routed_experts_prompt_start
        )
        self._echoes = echoes
        self._final_usage, self._continuous_usage = usage_events(request.stream_options)
        self._head = CompletionResponse(
            name,
            int(time.time()),
            pipeline.model.name,
            [],
            system_fingerprint=pipeline.model.fingerprint,
        )
        self._encode = msgspec.json.Encoder().encode
        self._started: set[int] = set()
        self._has_logprobs = request.logprobs is not None or bool(request.logprob_token_ids)
        has_more = self._has_logprobs or request.return_token_ids or request.echo
        self._templates: list[EventTemplate] = []
        if not (has_more or self._continuous_usage):
            for index in range(generation.num_choices):
                choices = [CompletionChoice(index, HOLE)]
                self._templates.append(
                    EventTemplate(msgspec.structs.replace(self._head, choices=choices))
                )

    def whole(self, choices: Sequence[FoldedChoice]) -> CompletionResponse:
        """See `respond.Wording`."""
        written: list[CompletionChoice] = []
        for folded in choices:
            choice = self._choice(_one_delta(folded), folded.message.text)
            choice.prompt_logprobs = None
            if folded.prompt_logprobs is not None and self._request.prompt_logprobs is not None:
                choice.prompt_logprobs = self._formatter.prompt(folded.prompt_logprobs)
            written.append(choice)
        return msgspec.structs.replace(
            self._head,
            choices=written,
            usage=self._generation.usage,
            kv_transfer_params=self._generation.kv_transfer_params or UNSET,
            metrics=self._generation.timings if self._has_metrics else UNSET,
        )

    def begin(self) -> bytes:
        """See `respond.Wording`."""
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        text = delta.text
        if self._templates and delta.finish_reason is None:
            return self._templates[delta.index].event(text) if text else b""
        choice = self._choice(delta, text)
        if not (choice.text or choice.finish_reason or choice.logprobs or choice.token_ids):
            return b""  # tokens that are not a complete character yet, or may be a stop string
        self._head.choices = [choice]
        if self._continuous_usage:
            self._head.usage = self._generation.usage
        if delta.finish_reason is not None:
            self._head.kv_transfer_params = self._generation.kv_transfer_params or UNSET
        return event(self._encode(self._head))

    def end(self, failure: ApiError | None) -> bytes:
        """See `respond.Wording`."""
        if not self._final_usage:
            return last_events(None, failure)
        self._head.choices, self._head.usage = [], self._generation.usage
        if self._has_metrics:
            self._head.metrics = self._generation.timings
        return last_events(self._head, failure)

    def _choice(self, delta: ChoiceDelta, text: str) -> CompletionChoice:
        request = self._request
        choice = CompletionChoice(delta.index, text, None, delta.finish_reason, delta.stop_reason)
        choice.routed_experts = self._experts.text(delta.routed_experts)
        is_first = delta.index not in self._started
        if is_first:
            self._started.add(delta.index)
            if request.echo:
                choice.text = self._echo_of(delta.index) + text
            if request.return_token_ids:
                choice.prompt_token_ids = self._prompt_of(delta.index)
        if self._has_logprobs:
            choice.logprobs = self._logprobs(delta, is_first)
        if request.return_token_ids:
            choice.token_ids = delta.token_ids
        return choice

    def _echo_of(self, index: int) -> str:
        return self._echoes[self._generation.prompt_number(index)] if self._request.echo else ""

    def _prompt_of(self, index: int) -> list[int]:
        generation = self._generation
        return generation.prompts[generation.prompt_number(index)].tolist()

    def _logprobs(self, delta: ChoiceDelta, is_first: bool) -> CompletionLogprobs:
        entries: list[TokenLogprobs] = delta.logprobs or []
        echoed = self._echo_of(delta.index)
        offsets = [len(echoed) + offset for offset in delta.offsets]
        if not (is_first and self._request.echo):
            return self._formatter.completion(entries, offsets)
        prompt = self._prompt_of(delta.index)
        return self._formatter.completion(
            (delta.prompt_logprobs or []) + entries,
            prompt_offsets(self._renderer, prompt, echoed) + offsets,
            prompt[0],
        )


def _one_delta(folded: FoldedChoice) -> ChoiceDelta:
    """All of a choice as one delta; its text is in `folded.message`."""
    return ChoiceDelta(
        folded.index,
        [],
        folded.token_ids,
        folded.logprobs,
        folded.offsets,
        folded.finish_reason,
        folded.stop_reason,
        folded.prompt_logprobs,
        routed_experts=folded.routed_experts,
    )
