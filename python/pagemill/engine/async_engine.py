"""Requests of several choices on an engine, in this process or in another one.

    stream = await engine.submit(prompts, sampling)
    with stream:
        async for outputs in stream:
            ...

The engine's client passes outputs as they come. Nothing polls and nothing blocks the loop.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.engine.client import EngineClient
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.messages import ChoiceRequest, EngineRequest, ModelFacts
from pagemill.engine.native import NativeOutput
from pagemill.engine.output_plugins import failure_text, named_plugins
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.token_limits import TokenLimits
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.structured.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request, and how many tokens may follow."""

    rendered: RenderedPrompt
    max_tokens: int = 0
    num_written: int = 0
    """Of its tokens, how many are the beginning of the output."""


class AsyncEngine:
    """Submits requests and routes outputs. Lives on one event loop; not thread-safe.

    Every submitted child request is either routed to a live `RequestStream` or has been aborted:
    `num_live` counts them, and `check_integrity` verifies the tables.
    """

    def __init__(self, client: EngineClient, eos_token_ids: Sequence[int] = ()) -> None:
        self.eos_token_ids = tuple(eos_token_ids)
        """Tokens that end every choice; may be set once the model is known."""
        self._client = client
        self._ids = itertools.count(1)
        self._routes: dict[int, tuple[RequestStream, int]] = {}

    @property
    def num_live(self) -> int:
        """Child requests that have not finished and were not aborted."""
        return len(self._routes)

    async def start(self) -> None:
        """Reaches the engine.

        Raises:
            EngineError: it cannot be reached.
        """
        await self._client.start(self._on_outputs, self._fail_all)

    @property
    def model(self) -> ModelFacts:
        """What is known of the model, once started."""
        return self._client.model

    async def submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None,
        *,
        priority: int = 0,
        cache_salt: str = "",
        tenant: str = "",
        kv_transfer_params: Mapping[str, str] | None = None,
        grammar: Grammar | None = None,
        limits: TokenLimits | None = None,
        deadline: float | None = None,
        adapter: str = "",
        engine: int | None = None,
        transcript: TranscriptRules | None = None,
        name: str = "",
    ) -> RequestStream:
        """Submits each prompt `sampling.n` times; choice `p * n + i` is sample `i` of prompt `p`.

        `sampling` None requests pooled outputs. `priority` and `tenant` are for the scheduling
        policies of these names: lower numbers run first, tenants share. Requests whose `cache_salt`
        differs share no KV. `kv_transfer_params` are for the KV connector: what a choice of another
        engine ended with. `grammar` is what each choice has to be, `limits` are tokens that it may
        not have. What has not ended at `deadline`, of `time.monotonic()`, fails. `adapter` is the
        name of one, "" the model as it is. `engine` is the number of one of several; None: any.
        `transcript` is what each choice is written by. `name` is for `abort`. All or nothing: when
        one child is refused, none runs.

        Raises:
            EngineError: the engine's refusal.
        """
        params = dict(kv_transfer_params or {})
        plugins = () if sampling is None else named_plugins(sampling.extra_args)
        requests = [
            EngineRequest(
                prompt.rendered,
                self._choices(prompt, sampling),
                priority,
                cache_salt,
                tenant,
                kv_transfer_params=params,
                grammar=grammar,
                limits=limits,
                deadline_us=None if deadline is None else int(1e6 * deadline),
                adapter=adapter,
                transcript=transcript,
                return_routed_experts=sampling is not None and sampling.return_routed_experts,
                plugins=plugins,
                num_written=prompt.num_written,
            )
            for prompt in prompts
        ]
        choices = [choice for request in requests for choice in request.choices]
        stream = RequestStream(self._abort, name)
        for index, choice in enumerate(choices):  # outputs may come before `submit` returns
            self._routes[choice.id] = (stream, index)
            stream.adopt(choice.id, index)
        try:
            stream.engine = await self._client.submit(requests, engine)
        except BaseException:
            stream.close()
            raise
        return stream

    def room(self) -> int:
        """How many more choices would be queued now, at least 1; see `EngineClient.room`.

        Raises:
            EngineError: the refusal that any request would get.
        """
        return self._client.room()

    def abort(self, names: Collection[str] | None) -> int:
        """Ends the requests with `names`, or all of this client's, with the reason "abort"; returns
        how many there were."""
        streams = {id(stream): stream for stream, _ in self._routes.values()}
        found = [each for each in streams.values() if names is None or each.name in names]
        for stream in found:
            stream.abort()
        return len(found)

    def check_integrity(self) -> None:
        """Raises AssertionError when the routing table and the streams disagree."""
        for child, (stream, _) in self._routes.items():
            if child not in stream.live_children:
                raise AssertionError(f"child request {child} is routed to a stream without it")

    def engines(self) -> Sequence[EngineSnapshot | None]:
        """The statistics of each engine; see `EngineClient.engines`."""
        return self._client.engines()

    def states(self) -> Sequence[str]:
        """The state of each engine; see `EngineClient.states`."""
        return self._client.states()

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Runs a control operation of the engine; see `EngineClient.call`."""
        return await self._client.call(operation, **arguments)

    async def shutdown(self) -> None:
        """Aborts what runs, leaves the engine and ends every stream."""
        await self._client.close()
        self._fail_all(EngineError("UNAVAILABLE", "The server is shutting down."))

    def _choices(
        self, prompt: Prompt, sampling: SamplingParams | None
    ) -> tuple[ChoiceRequest, ...]:
        children: Sequence[dict[str, Any] | None] = [None]
        if sampling is not None:
            children = child_sampling(
                sampling, max_tokens=prompt.max_tokens, eos_token_ids=self.eos_token_ids
            )
        return tuple(ChoiceRequest(next(self._ids), child) for child in children)

    def _abort(self, child: int) -> None:
        if self._routes.pop(child, None) is not None:
            self._client.abort([child])

    def _on_outputs(self, outputs: Sequence[NativeOutput]) -> None:
        now = time.monotonic()
        for output in outputs:
            route = self._routes.get(output.request_id)
            if route is None:  # aborted here, but not yet by the engine
                continue
            stream, index = route
            if output.finish_reason is not None:
                del self._routes[output.request_id]
            stream.push(output.request_id, choice_output(output, index, now))

    def _fail_all(self, error: EngineError) -> None:
        streams = {id(stream): stream for stream, _ in self._routes.values()}
        self._routes.clear()
        for stream in streams.values():
            stream.fail(error)


def choice_output(output: NativeOutput, index: int, now: float) -> ChoiceOutput:
    """A native output as choice `index` of its request; `now` is `time.monotonic()`."""
    token_ids = list(output.new_token_ids)
    result = ChoiceOutput(
        index,
        token_ids,
        [now] * len(token_ids),
        None if output.logprobs is None else list(output.logprobs),
        None if output.prompt_logprobs is None else list(output.prompt_logprobs),
        output.finish_reason or output.turn_finished,
        num_cached_tokens=output.num_cached_tokens,
        created=now,
    )
    if result.finish_reason is not None:  # the rest comes with the end, and reading it is not free
        result.stop_token_id = output.stop_token_id
        result.pooled = output.pooled
        result.kv_transfer_params = output.kv_transfer_params
        result.num_evicted_tokens = output.num_evicted_tokens
        result.num_draft_steps = output.num_draft_steps
        result.num_draft_tokens = output.num_draft_tokens
        result.num_accepted_draft_tokens = output.num_accepted_draft_tokens
        result.queued_s = output.queued_s
        result.prefill_s = output.prefill_s
        result.decode_s = output.decode_s
        result.weight_versions = output.weight_versions
        if len(output.routed_experts):
            result.routed_experts = np.asarray(output.routed_experts, np.uint16)
        if output.error_code is not None:
            message = failure_text(output.error_message or "The request failed.")
            retry_after_s = output.error_retry_after_s
            result.error = EngineError(output.error_code, message, retry_after_s=retry_after_s)
    return result
