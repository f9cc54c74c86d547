"""Request to choices: token ids to the engine, tokens back to text, stop strings, usage, metrics.

Streaming and non-streaming responses read the same `Generation`; they differ in when they write.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pagemill.engine.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.engine.async_engine import AsyncEngine, Prompt
from pagemill.engine.limits import prompt_array, resolve_max_tokens
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.stop_strings import StopStringFilter
from pagemill.server.errors import bad_request, from_engine
from pagemill.server.model_info import ModelInfo
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.rendering import Renderer, Rendering


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """What the pipeline needs to know beside prompts and sampling.

    `max_tokens` is the client's own number; `default_max_tokens` applies where it gave none, and
    None means all the room there is. `param` names the field that prompts came from. `priority`,
    `tenant` and `cache_salt` are `AsyncEngine.submit`'s.
    """

    max_tokens: int | None
    default_max_tokens: int | None
    truncate_prompt_tokens: int | None = None
    cache_salt: str = ""
    priority: int = 0
    tenant: str = ""
    param: str = "prompt"


class Pipeline:
    """Joins renderer, engine and metrics for one model."""

    def __init__(
        self, engine: AsyncEngine, renderer: Renderer, model: ModelInfo, metrics: RequestMetrics
    ) -> None:
        self.engine = engine
        self.renderer = renderer
        self.rendering = Rendering(renderer, model.max_model_len)
        self.model = model
        self.metrics = metrics

    def check_choices(self, num_prompts: int, n: int) -> None:
        """Raises a 400 ApiError for more choices than fit; called before anything is tokenized."""
        if num_prompts * n > self.model.max_choices:
            raise bad_request(
                f"{num_prompts} prompt(s) times `n` = {n} are more choices than this server can"
                f" hold ({self.model.max_choices}); send fewer at a time.",
                "n",
            )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams,
        options: GenerationOptions,
    ) -> Generation:
        """Submits every prompt `sampling.n` times. The caller closes the result.

        Raises:
            ApiError: the request cannot be served; nothing runs then.
        """
        sampling = self.model.defaults.fill(sampling)
        try:
            checked = [self._prompt(ids, options) for ids in prompts]
            stream = self._submit(checked, sampling, options)
        except EngineError as error:
            raise from_engine(error) from error
        return Generation(self, stream, [p.token_ids for p in checked], sampling)

    async def embed(
        self, prompts: Sequence[Sequence[int]], options: GenerationOptions
    ) -> tuple[list[np.ndarray], int]:
        """One float32 vector per prompt, and the number of prompt tokens.

        Raises:
            ApiError: the request cannot be served, or one of its prompts failed.
        """
        try:
            checked = [self._pooling_prompt(ids, options) for ids in prompts]
            vectors: list[np.ndarray] = []
            # In portions, so that one large request leaves room in the queue for others.
            portion = max(1, self.model.max_choices // 4)
            for start in range(0, len(checked), portion):
                vectors += await self._embed(checked[start : start + portion], options)
        except EngineError as error:
            raise from_engine(error) from error
        return vectors, sum(len(p.token_ids) for p in checked)

    async def _embed(
        self, prompts: Sequence[Prompt], options: GenerationOptions
    ) -> list[np.ndarray]:
        vectors: dict[int, np.ndarray] = {}
        with self._submit(prompts, None, options) as stream:
            async for outputs in stream:
                for output in outputs:
                    vectors[output.index] = self._pooled(output)
        return [vectors[i] for i in range(len(prompts))]

    def _submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None,
        options: GenerationOptions,
    ) -> RequestStream:
        return self.engine.submit(
            prompts,
            sampling,
            priority=options.priority,
            cache_salt=options.cache_salt,
            tenant=options.tenant,
        )

    def _prompt(self, token_ids: Sequence[int], options: GenerationOptions) -> Prompt:
        limit = options.truncate_prompt_tokens
        if limit is not None:
            if limit == -1:
                limit = max(1, self.model.max_model_len - (options.max_tokens or 1))
            token_ids = token_ids[len(token_ids) - min(limit, len(token_ids)) :]
        room = resolve_max_tokens(
            len(token_ids),
            options.max_tokens,
            options.default_max_tokens,
            self.model.max_model_len,
            options.param,
        )
        if self.model.max_tokens_cap is not None:
            room = min(room, self.model.max_tokens_cap)
        return Prompt(prompt_array(token_ids, self.model.vocab_size, options.param), room)

    def _pooling_prompt(self, token_ids: Sequence[int], options: GenerationOptions) -> Prompt:
        limit = options.truncate_prompt_tokens
        if limit is not None:
            # An encoder's first token stands for the whole text: keep the head, not the tail.
            limit = self.model.max_model_len if limit == -1 else limit
            token_ids = token_ids[:limit]
        if len(token_ids) > self.model.max_model_len:
            raise EngineError(
                "INVALID_ARGUMENT",
                f"This model's maximum context length is {self.model.max_model_len} tokens, but"
                f" `{options.param}` has {len(token_ids)}. Shorten it, or send"
                " `truncate_prompt_tokens: -1`.",
                options.param,
            )
        return Prompt(prompt_array(token_ids, self.model.vocab_size, options.param))

    def _pooled(self, output: ChoiceOutput) -> np.ndarray:
        if output.error is not None:
            self.metrics.finished("error")
            raise output.error
        if output.pooled is None:
            raise EngineError("INTERNAL", f"The engine ended with {output.finish_reason}.")
        self.metrics.finished("stop")
        return output.pooled


class Generation:
    """One submitted request: deltas of its choices, and its usage so far.

    Iterate `deltas` once. `close` aborts whatever has not finished; it is idempotent, and must be
    called however the request ends.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        stream: RequestStream,
        prompts: Sequence[np.ndarray],
        sampling: SamplingParams,
    ) -> None:
        self._stream = stream
        self._metrics = pipeline.metrics
        self._arrived = time.monotonic()
        self.prompts = prompts
        self.sampling = sampling
        self._prompt_tokens = sum(len(p) for p in prompts)
        self._completion_tokens = 0
        self._cached_tokens = [0] * len(prompts)
        self._choices = [
            _Choice(_assembler(pipeline.renderer, prompt, sampling))
            for prompt in prompts
            for _ in range(sampling.n)
        ]
        for prompt in prompts:
            self._metrics.prompt_tokens.observe(len(prompt))

    def prompt_of(self, index: int) -> np.ndarray:
        """Token ids of the prompt that choice `index` continues."""
        return self.prompts[index // self.sampling.n]

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._choices)

    @property
    def usage(self) -> Usage:
        """Tokens so far; a prompt counts once, however many choices it has."""
        return Usage(
            self._prompt_tokens,
            self._completion_tokens,
            self._prompt_tokens + self._completion_tokens,
            PromptTokensDetails(sum(self._cached_tokens)),
        )

    async def deltas(self) -> AsyncGenerator[list[ChoiceDelta], None]:
        """Yields what is new, all choices that have news at a time.

        Raises:
            ApiError: a choice failed; what was generated before it has been yielded, and the other
                choices are aborted by `close`.
        """
        try:
            async for outputs in self._stream:
                yield [self._take(output) for output in outputs]
                for output in outputs:
                    self._raise_failure(output)
        except EngineError as error:
            self._metrics.finished("error")
            raise from_engine(error) from error

    def close(self) -> None:
        """Aborts what has not finished."""
        for choice in self._choices:
            if not choice.assembler.finished:
                choice.assembler.finished = True
                self._metrics.finished("abort")
        self._stream.close()

    def _take(self, output: ChoiceOutput) -> ChoiceDelta:
        choice = self._choices[output.index]
        if output.error is not None:  # no reason a client could read: `deltas` raises it afterwards
            output = replace(output, finish_reason=None)
        delta = choice.assembler.push(output)
        delta.prompt_logprobs = output.prompt_logprobs
        self._completion_tokens += len(delta.token_ids)
        prompt = output.index // self.sampling.n
        if output.index % self.sampling.n == 0:  # its siblings find what it has computed
            self._cached_tokens[prompt] = max(self._cached_tokens[prompt], output.num_cached_tokens)
        self._observe(choice, output, delta)
        if delta.finish_reason is not None and output.finish_reason is None:
            self._stream.stop(output.index)  # a stop string, of which the engine knows nothing
        return delta

    def _raise_failure(self, output: ChoiceOutput) -> None:
        assembler = self._choices[output.index].assembler
        # Tokens merged with the failure may have held a stop string: the choice was complete then.
        if output.error is not None and not assembler.finished:
            assembler.finished = True
            raise output.error

    def _observe(self, choice: _Choice, output: ChoiceOutput, delta: ChoiceDelta) -> None:
        metrics, count = self._metrics, len(delta.token_ids)
        if count:
            if choice.num_tokens == 0:
                metrics.time_to_first_token.observe(output.created - self._arrived)
            else:
                metrics.inter_token_latency.observe((output.created - choice.last) / count)
            choice.last = output.created
            choice.num_tokens += count
        if delta.finish_reason is None:
            return
        metrics.finished(delta.finish_reason)
        metrics.e2e.observe(output.created - self._arrived)
        metrics.generation_tokens.observe(choice.num_tokens)
        if output.finish_reason is not None:
            metrics.queue.observe(output.queued_s)
            metrics.prefill.observe(output.prefill_s)
            metrics.decode.observe(output.decode_s)


class _Choice:
    """A choice's text so far, and when its last token came."""

    __slots__ = ("assembler", "last", "num_tokens")

    def __init__(self, assembler: ChoiceAssembler) -> None:
        self.assembler = assembler
        self.last = 0.0
        self.num_tokens = 0


def _assembler(renderer: Renderer, prompt: np.ndarray, sampling: SamplingParams) -> ChoiceAssembler:
    stop_filter = None
    if sampling.stop:
        stop_filter = StopStringFilter(sampling.stop, sampling.include_stop_str_in_output)
    return ChoiceAssembler(
        renderer.detokenizer(prompt.tolist(), sampling.skip_special_tokens),
        stop_filter,
        include_stop=sampling.include_stop_str_in_output,
        min_tokens=sampling.min_tokens,
    )
