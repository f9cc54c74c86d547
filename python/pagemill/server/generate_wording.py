"""How `/inference/v1/generate` writes a response."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from pagemill.render.assembly import ChoiceDelta
from pagemill.server.errors import ApiError
from pagemill.server.generation import Generation
from pagemill.server.logprobs import LogprobFormatter
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.generate import (
    GenerateChoice,
    GenerateRequest,
    GenerateResponse,
    WeightSpan,
)
from pagemill.server.respond import FoldedChoice
from pagemill.server.routed_experts import RoutedExpertsFormatter
from pagemill.server.sse import event, last_events, usage_events


class GenerateWording:
    """Implements `respond.Wording` for one request."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: GenerateRequest,
        generation: Generation,
        has_metrics: bool = False,
    ) -> None:
        """`has_metrics`: the response says where its time went."""
        self._has_metrics = has_metrics
        self._request = request
        self._generation = generation
        self._has_text = request.output_mode == "text"
        self._formatter = LogprobFormatter(pipeline.renderer, not self._has_text)
        self._experts = RoutedExpertsFormatter(
            pipeline.engine.model.routed_experts,
            request.sampling_params.routed_experts_prompt_start,
        )
        self._final_usage, self._continuous_usage = usage_events(request.stream_options)
        self._head = GenerateResponse(
            request.request_id, pipeline.model.name, request.output_mode, []
        )
        self._num_tokens: Counter[int] = Counter()
        self._encode = msgspec.json.Encoder().encode

    def whole(self, choices: Sequence[FoldedChoice]) -> GenerateResponse:
        """See `respond.Wording`."""
        written = [
            GenerateChoice(
                each.index,
                each.token_ids,
                each.message.text if self._has_text else UNSET,
                self._formatter.chat(each.logprobs, self._num_logprobs) if each.logprobs else None,
                each.finish_reason,
                each.stop_reason,
                self._weight_spans(each.index, len(each.token_ids)),
                self._experts.text(each.routed_experts),
            )
            for each in choices
        ]
        scored = choices[0].prompt_logprobs
        return msgspec.structs.replace(
            self._head,
            choices=written,
            prompt_token_ids=self._request.token_ids if self._request.return_token_ids else UNSET,
            prompt_logprobs=UNSET if scored is None else self._formatter.prompt(scored),
            usage=self._generation.usage,
            kv_transfer_params=self._generation.kv_transfer_params or UNSET,
            metrics=self._generation.timings if self._has_metrics else UNSET,
        )

    def begin(self) -> bytes:
        """See `respond.Wording`."""
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        """See `respond.Wording`."""
        if not (delta.token_ids or delta.finish_reason):
            return b""
        choice = GenerateChoice(
            delta.index,
            delta.token_ids,
            delta.text if self._has_text else UNSET,
            self._formatter.chat(delta.logprobs, self._num_logprobs) if delta.logprobs else None,
            delta.finish_reason,
            delta.stop_reason,
        )
        self._num_tokens[delta.index] += len(delta.token_ids)
        if delta.finish_reason is not None:
            num_tokens = self._num_tokens[delta.index]
            choice.weight_versions = self._weight_spans(delta.index, num_tokens)
            choice.routed_experts = self._experts.text(delta.routed_experts)
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

    def _weight_spans(self, index: int, num_tokens: int) -> list[WeightSpan] | UnsetType:
        versions = self._generation.weight_versions.get(index)
        if not versions:
            return UNSET
        ends = [*(start for start, _ in versions[1:]), num_tokens]
        return [
            WeightSpan(version, start, min(end, num_tokens))
            for (start, version), end in zip(versions, ends, strict=True)
            if start < num_tokens  # tokens behind a stop string are not reported
        ]

    @property
    def _num_logprobs(self) -> int:
        sampling = self._request.sampling_params
        return -1 if sampling.logprob_token_ids else sampling.logprobs or 0
