"""Requests to the engine: prompts are truncated and checked, and become a `Generation`."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pagemill.engine.async_engine import AsyncEngine, Prompt
from pagemill.engine.limits import (
    check_stop,
)
from pagemill.engine.outputs import ChoiceOutput, EngineError, ended_by_operator
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.token_limits import TokenLimits
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.observe.metrics import RequestMetrics, TenantUsage
from pagemill.render.assembly import ChoiceAssembler
from pagemill.render.output_parser import OutputParser, ParserOptions
from pagemill.server.access.caller import Caller
from pagemill.server.capacity import Capacity
from pagemill.server.choice_search import Beams, check_search, find_choices
from pagemill.server.errors import bad_request, from_engine
from pagemill.server.generation import Generation
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.grammar.constraint_compiler import ConstraintCompiler
from pagemill.server.limits.limiter import Charge
from pagemill.server.media import Media
from pagemill.server.media_encoding import MediaEncoding
from pagemill.server.model_info import ModelInfo
from pagemill.server.output_limits import token_limits
from pagemill.server.pooling.plugin import DataPlugin
from pagemill.server.prompt_fit import fit_pooled, fit_prompts, kept_tokens
from pagemill.server.records.content_log import ContentLog, Source
from pagemill.server.records.record import Submission
from pagemill.server.rendering import Renderer, Rendering
from pagemill.server.speech.speech import Speech
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import Grammar

MAX_POOLED_NUMBERS = 2**24
"""Of the rows of tokens in one response: 64 MiB, and a few times as much as JSON."""
_PROMPT_END_TOKENS = 16  # a marker that opens reasoning, and white space


class CheckedRequest(NamedTuple):
    """A request with one prompt, as `Pipeline.generate` takes it."""

    prompt: RenderedPrompt
    sampling: SamplingParams
    options: GenerationOptions


class CheckedFields(NamedTuple):
    """All of a request but its prompt."""

    sampling: SamplingParams
    options: GenerationOptions


class Pipeline:
    """Joins renderer, engine and metrics for one model."""

    def __init__(
        self,
        engine: AsyncEngine,
        renderer: Renderer,
        model: ModelInfo,
        metrics: RequestMetrics,
        grammars: GrammarCompiler,
        media: Media | None = None,
    ) -> None:
        self.engine = engine
        self._constraints = ConstraintCompiler(grammars, renderer.formats, metrics)
        self.renderer = renderer
        self.rendering = Rendering(renderer, model.max_model_len, media)
        self.model = model
        self.metrics = metrics
        # Rows that the engine has for this process and this process has not read.
        self._row_room = Capacity(MAX_POOLED_NUMBERS)
        self.longest_s: float | None = None
        """Time limit of every request; `timeout_s` can only set a shorter one."""
        self.content_log: ContentLog | None = None
        """Where prompts and outputs are logged; None: nowhere."""
        self.plugin: DataPlugin | None = None
        """What reads the `data` of requests; None: they have none."""
        self.late_interaction = LateInteraction()
        """How texts are read whose vectors of tokens are compared."""
        self.speech: Speech | None = None
        """What reads audio to transcribe; None: the model transcribes nothing."""
        self.media_encoding: MediaEncoding | None = None
        """What places media in prompts of encoders without their language model; None: it is
        another model."""

    def with_adapter(self, name: str) -> Pipeline:
        """The same model computed with the adapter `name`, which is its name in responses."""
        adapted = copy.copy(self)
        adapted.model = replace(self.model, names=(name,), adapter=name)
        return adapted

    def check_choices(self, num_prompts: int, n: int, param: str = "n") -> None:
        """Raises a 400 ApiError, about the field `param`, for more choices than fit; called before
        anything is tokenized."""
        if num_prompts * n > self.model.max_choices:
            raise bad_request(
                f"{num_prompts} prompt(s) times `n` = {n} are more choices than this server can"
                f" hold ({self.model.max_choices}); send fewer at a time.",
                param,
            )

    async def embeds(self, sent: Sequence[str]) -> list[RenderedPrompt]:
        """The prompts of a request's `prompt_embeds`.

        Raises:
            ApiError: 400: the model takes none, or one does not fit it.
        """
        width = self.model.embeds_width
        if not width:
            raise bad_request(
                "`prompt_embeds`: this server takes prompts as texts and token ids only; start it"
                " with --enable-prompt-embeds.",
                "prompt_embeds",
            )
        return await self.rendering.embeds(sent, width)

    async def generate(
        self,
        prompts: Sequence[RenderedPrompt],
        sampling: SamplingParams,
        options: GenerationOptions,
    ) -> Generation:
        """Submits every prompt `sampling.n` times. The caller closes the result.

        Raises:
            ApiError: the request cannot be served; nothing runs then.
        """
        stated, sampling = sampling, self.model.defaults.fill(sampling)
        try:
            self.model.defaults.check(stated)
            check_stop(sampling.stop, self.renderer.has_text)
            checked = fit_prompts(self.model, prompts, options)
            token_ids = [prompt.rendered.token_ids for prompt in checked]
            parsed = [_parsed(self.renderer, prompt, options.parsed) for prompt in token_ids]
            if options.search is not None:
                check_search(options.search, sampling, self.model.max_logprobs)
            _check_beginnings(parsed, options)
            grammar = await self.output_grammar(checked[0], options)
            limits = token_limits(
                options.limits, self.renderer, self.model.vocab_size, parsed[0].begins
            )
            is_constrained = grammar is not None or bool(sampling.extra_args)
            submit = functools.partial(
                self._submit, options=options, grammar=grammar, limits=limits
            )
            assemblers = [
                _assembler(self.renderer, prompt, sampling, each)
                for prompt, each in zip(token_ids, parsed, strict=True)
                for _ in range(sampling.n)
            ]
            charge = options.caller.charge(_most_tokens(checked, sampling.n))
            with _settled_on_error(charge):
                stream = await find_choices(
                    options.search,
                    submit,
                    checked,
                    sampling,
                    self.engine.eos_token_ids,
                    constrained=is_constrained,
                    max_tokens_param=options.max_tokens_param,
                )
        except EngineError as error:
            raise from_engine(error) from error
        metrics = self.metrics.of_engine(stream.engine)
        for prompt in checked:
            metrics.submitted(len(prompt.rendered), prompt.max_tokens, sampling.n)
        if self.model.defaults.watermarks:
            metrics.watermark(_watermark_status(sampling, options))
        if options.caller.record is not None:
            options.caller.record.submission = _submission(checked, sampling)
        generation = Generation(
            stream,
            assemblers,
            metrics,
            token_ids,
            sampling,
            options.caller,
            charge,
            self.model.adapter,
        )
        if self.content_log is not None:
            source = self._source(options.caller)
            try:
                self.content_log.prompts(source, token_ids, _said(checked, sampling))
            except BaseException:
                generation.close()
                raise
            generation.outputs = self.content_log.outputs(source, len(assemblers))
        return generation

    def assembler(
        self, prompt: np.ndarray, sampling: SamplingParams, options: GenerationOptions
    ) -> ChoiceAssembler:
        """What reads a choice that follows the tokens of `prompt`."""
        parsed = _parsed(self.renderer, prompt, options.parsed)
        return _assembler(self.renderer, prompt, sampling, parsed)

    async def output_grammar(self, prompt: Prompt, options: GenerationOptions) -> Grammar | None:
        """What each output that follows `prompt` has to be; None: anything.

        Raises:
            ApiError: 400: the grammar cannot be used.
        """
        if options.constraint is None:
            return None
        parsed = _parsed(self.renderer, prompt.rendered.token_ids, options.parsed)
        return await self._constraints.grammar(options.constraint, parsed)

    async def pool(
        self, prompts: Sequence[RenderedPrompt], options: GenerationOptions
    ) -> tuple[list[np.ndarray], int]:
        """The rows of each prompt, float32 [width], or of a model that has one for each token
        [tokens, width]; and the number of prompt tokens.

        Raises:
            ApiError: the request cannot be served, or one of its prompts failed.
        """
        pooled = self.model.rows
        if pooled is not None:
            by_token, most = pooled.task.by_token, MAX_POOLED_NUMBERS // pooled.width
            count = sum(map(len, prompts)) if by_token else len(prompts)
            if count > most:
                raise bad_request(
                    f"`{options.param}` has {count} {'tokens' if by_token else 'texts'}, of which"
                    f" each has {pooled.width} numbers; a response holds those of {most}: send less"
                    " at a time.",
                    options.param,
                )
        rows: dict[int, np.ndarray] = {}
        num_tokens = await self.pool_each(prompts, options, rows.__setitem__)
        return [rows[i] for i in range(len(prompts))], num_tokens

    async def pool_each(
        self,
        prompts: Sequence[RenderedPrompt],
        options: GenerationOptions,
        take: Callable[[int, np.ndarray], None],
    ) -> int:
        """Calls `take` with the index and the rows of each prompt, as soon as there are some;
        returns the number of prompt tokens.

        Raises:
            ApiError: as `pool`; `take` may have been called for some prompts.
        """
        try:
            checked = fit_pooled(self.model, prompts, options)
            num_tokens = _most_tokens(checked, 1)
            charge = options.caller.charge(num_tokens)
            with _settled_on_error(charge):
                if self.content_log is not None:
                    token_ids = [prompt.rendered.token_ids for prompt in checked]
                    self.content_log.prompts(self._source(options.caller), token_ids, {})
                for start, portion in self._portions(checked):
                    await self._pool_portion(start, portion, options, take)
        except EngineError as error:
            raise from_engine(error) from error
        charge.settle(num_tokens)
        caller = options.caller
        self.metrics.tenant_served(caller.tenant, caller.key_id, TenantUsage(num_tokens, 0))
        if caller.record is not None:
            work = caller.record.work  # of a request that is pooled in parts, or has generated
            num_tokens_before = work.prompt_tokens
            caller.record.work = replace(
                work, model=self.model.name, prompt_tokens=num_tokens_before + num_tokens
            )
        return num_tokens

    async def _pool_portion(
        self,
        start: int,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        take: Callable[[int, np.ndarray], None],
    ) -> None:
        """Pools the prompts of a request that begin with number `start`."""
        pooled = self.model.rows
        width = 0 if pooled is None else pooled.width
        numbers = sum(map(self._num_rows, prompts)) * width
        await self._row_room.take(numbers)
        try:
            with await self._submit(prompts, None, options) as stream:
                async for outputs in stream:
                    for output in outputs:
                        take(start + output.index, self._rows(output, prompts[output.index]))
        finally:
            self._row_room.give(numbers)

    def _portions(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Sequence[Prompt]]]:
        """Parts of a large request and where they begin: each leaves room in the queue for others,
        and its rows fit in memory."""
        pooled, most = self.model.rows, max(1, self.model.max_choices // 4)
        room = 0 if pooled is None else MAX_POOLED_NUMBERS // pooled.width
        start = rows = 0
        for at, prompt in enumerate(prompts):
            rows += self._num_rows(prompt)
            if at - start == most or (at > start and rows > room):
                yield start, prompts[start:at]
                start, rows = at, self._num_rows(prompt)
        yield start, prompts[start:]

    def _num_rows(self, prompt: Prompt) -> int:
        pooled = self.model.rows
        return len(prompt.rendered) if pooled is not None and pooled.task.by_token else 1

    async def _submit(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | None,
        options: GenerationOptions,
        grammar: Grammar | None = None,
        limits: TokenLimits | None = None,
    ) -> RequestStream:
        try:
            return await self.engine.submit(
                prompts,
                sampling,
                priority=options.caller.priority_of(options.priority),
                cache_salt=options.cache_salt,
                tenant=options.caller.tenant,
                kv_transfer_params=options.kv_transfer_params,
                grammar=grammar,
                limits=limits,
                transcript=options.transcript,
                deadline=options.deadline or self.deadline(options.timeout_s, options.caller),
                adapter=self.model.adapter,
                engine=options.caller.engine,
                name=self._source(options.caller).request_id,
            )
        finally:
            if options.caller.prepared is not None:
                options.caller.prepared()

    def _source(self, caller: Caller) -> Source:
        request_id = "" if caller.record is None else caller.record.request_id
        return Source(request_id, caller.key_id, self.model.name)

    def deadline(self, timeout_s: float | None, caller: Caller) -> float | None:
        """When a request of `caller` with this `timeout` has to have ended, by
        `time.monotonic()`."""
        limits = [limit for limit in (timeout_s, self.longest_s) if limit is not None]
        if not limits:
            return None
        began = caller.began
        if began is None:
            began = time.monotonic() if caller.record is None else caller.record.started
        return began + min(limits)

    def fit(self, prompts: Sequence[RenderedPrompt], options: GenerationOptions) -> list[Prompt]:
        """The prompts as the engine gets them, and how many tokens may follow each.

        Raises:
            ApiError: one is empty, too long, or has an unknown token.
        """
        try:
            return fit_prompts(self.model, prompts, options)
        except EngineError as error:
            raise from_engine(error) from error

    def longest_prompt(self, options: GenerationOptions) -> int | None:
        """The number of tokens to which `truncate_prompt_tokens` cuts prompts of a model that
        pools; None: it does not.

        Raises:
            ApiError: 400 for a number that is none.
        """
        try:
            return kept_tokens(self.model, options, self.model.max_model_len)
        except EngineError as error:
            raise from_engine(error) from error

    def _rows(self, output: ChoiceOutput, prompt: Prompt) -> np.ndarray:
        if output.error is not None:
            self.metrics.finished("error")
            raise output.error
        pooled = self.model.rows
        if output.finish_reason == "abort":
            self.metrics.finished("abort")
            raise ended_by_operator()
        if output.pooled is None or pooled is None:
            raise EngineError("INTERNAL", f"The engine ended with {output.finish_reason}.")
        self.metrics.finished("stop")
        return pooled.rows(output.pooled, prompt.rendered.token_ids)


def _submission(prompts: Sequence[Prompt], sampling: SamplingParams) -> Submission:
    longest = max(prompt.max_tokens for prompt in prompts)
    return Submission(time.monotonic(), sampling.n, longest, sampling.temperature, sampling.top_p)


def _said(prompts: Sequence[Prompt], sampling: SamplingParams) -> dict[str, object]:
    """What the log says of sampling."""
    return {
        "n": sampling.n,
        "max_tokens": max(prompt.max_tokens for prompt in prompts),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }


def _most_tokens(prompts: Sequence[Prompt], n: int) -> int:
    """What `n` choices of each prompt can take: a prompt counts once."""
    return sum(len(prompt.rendered) + n * prompt.max_tokens for prompt in prompts)


@contextlib.contextmanager
def _settled_on_error(charge: Charge) -> Generator[None]:
    """What fails in here takes no tokens."""
    try:
        yield
    except BaseException:
        charge.settle(0)
        raise


def _check_beginnings(parsed: Sequence[ParserOptions], options: GenerationOptions) -> None:
    """A grammar and a bound of reasoning are made for one state in which outputs begin.

    Raises:
        ApiError: 400: the prompts leave outputs in several.
    """
    is_limited = options.constraint or options.limits.max_reasoning_tokens is not None
    if is_limited and len({each.begins for each in parsed}) > 1:
        raise bad_request(
            f"`{options.param}`: some answers begin within reasoning and some do not, so they"
            " cannot be constrained together: send the conversations one by one.",
            options.param,
        )


def _parsed(renderer: Renderer, prompt: np.ndarray, parsed: ParserOptions) -> ParserOptions:
    """With the state in which the output begins."""
    formats = renderer.formats
    if not (parsed.reasoning and formats.has_reasoning and parsed.begins is None):
        return parsed
    end = renderer.decode(prompt[-_PROMPT_END_TOKENS:].tolist(), skip_special_tokens=False)
    return replace(parsed, begins=formats.after_prompt(end))


def _assembler(
    renderer: Renderer, prompt: np.ndarray, sampling: SamplingParams, parsed: ParserOptions
) -> ChoiceAssembler:
    return ChoiceAssembler(
        renderer.detokenizer(prompt.tolist(), sampling.skip_special_tokens),
        OutputParser(renderer.formats, parsed),
        sampling.stop,
        include_stop=sampling.include_stop_str_in_output,
        min_tokens=sampling.min_tokens,
    )


def _watermark_status(sampling: SamplingParams, options: GenerationOptions) -> str:
    """See the metric `watermark_requests`."""
    if sampling.temperature == 0 or options.transcript or isinstance(options.search, Beams):
        return "not_watermarked"
    return "skipped" if sampling.watermarking is False else "watermarked"
