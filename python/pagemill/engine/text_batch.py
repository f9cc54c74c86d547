"""Texts that continue prompts, generated in one batch on the calling thread.

batch = TextBatch(model, requests, params)
for delta in batch:
    ...                # as texts grow
batch.outputs          # all texts, in the order of the prompts
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import check_prompt, resolve_max_tokens
from pagemill.engine.loading import LoadedModel
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch
from pagemill.engine.outputs import ChoiceOutput, TokenLogprobs
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.token_matcher import TokenMatcherFactory
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.render.renderer import Renderer
from pagemill.structured.grammar import Grammar


@dataclass(slots=True)
class Choice:
    """One continuation. `token_ids` includes the token that stopped it; `text` does not."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Output:
    """A prompt and its `n` continuations. `prompt_logprobs[i]` is of prompt token `i + 1`."""

    prompt_token_ids: list[int]
    choices: list[Choice]
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextModel:
    """A loaded model and how its text is read; `ids` of requests that the engine has not had."""

    loaded: LoadedModel
    renderer: Renderer
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end every choice: those of the model and of its tokenizer."""
        built = self.loaded.core.built
        return tuple(dict.fromkeys((*built.eos_token_ids, *self.renderer.eos_token_ids)))


@dataclass(frozen=True, slots=True)
class _Running:
    """A choice that is being generated."""

    output: Output
    choice: Choice
    assembler: ChoiceAssembler

    def take(self, update: ChoiceOutput) -> ChoiceDelta:
        """Adds an output of the engine; raises its error."""
        if update.error is not None:
            raise update.error
        delta = self.assembler.push(update)
        choice, output = self.choice, self.output
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        if delta.logprobs is not None:
            choice.logprobs = (choice.logprobs or []) + delta.logprobs
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason
        output.num_cached_tokens = max(output.num_cached_tokens, update.num_cached_tokens)
        if update.prompt_logprobs is not None:
            output.prompt_logprobs = update.prompt_logprobs
        return delta


class TextBatch:
    """Iterates over the deltas of all choices; `outputs` grows with them. Leaving the iteration
    early aborts what runs."""

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[RenderedPrompt],
        stated: SamplingParams,
        default_max_tokens: int | None,
        token_matcher: TokenMatcherFactory | None = None,
        grammar: Grammar | None = None,
        adapter: str = "",
    ) -> None:
        """Checks all requests; the first iteration submits them.

        Args:
            model: where they run, one batch at a time.
            prompts: each is continued `stated.n` times.
            stated: what the caller chose; the model's defaults fill the rest.
            default_max_tokens: if `stated` has no `max_tokens`; None: all the room there is.
            token_matcher: makes what constrains an output.
            grammar: what each output has to be.
            adapter: the name of the adapter to compute with; "": the model as it is.

        Raises:
            EngineError: a request is refused.
        """
        self._model = model
        self._grammar, self._adapter = grammar, adapter
        self._params = model.loaded.defaults.fill(stated)
        self._running: list[_Running] = []
        self.outputs: list[Output] = []
        requests = [self._request(prompt, stated, default_max_tokens) for prompt in prompts]
        core = model.loaded.core
        if adapter and core.bindings.adapters is not None:
            core.bindings.adapters.require_adapter(adapter)
        self._batch = OfflineBatch(core.bindings, requests, core.max_choices, token_matcher)

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._running)

    def __iter__(self) -> Iterator[ChoiceDelta]:
        for update in self._batch:
            running = self._running[update.index]
            delta = running.take(update)
            if running.assembler.finished:
                self._batch.stop(update.index)  # the engine does not know of a stop string
            yield delta

    def _request(
        self, prompt: RenderedPrompt, stated: SamplingParams, default_max_tokens: int | None
    ) -> EngineRequest:
        model, params = self._model, self._params
        built = model.loaded.core.built
        check_prompt(prompt, built.vocab_size, "prompts")
        room = resolve_max_tokens(
            len(prompt), stated.max_tokens, default_max_tokens, built.max_model_len, "prompts"
        )
        children = child_sampling(params, max_tokens=room, eos_token_ids=model.eos_token_ids)
        output = Output(prompt.token_ids.tolist(), [Choice() for _ in children])
        self.outputs.append(output)
        for choice in output.choices:
            self._running.append(_Running(output, choice, self._assembler(output)))
        return EngineRequest(
            prompt,
            tuple(ChoiceRequest(next(model.ids), child) for child in children),
            grammar=self._grammar,
            adapter=self._adapter,
        )

    def _assembler(self, output: Output) -> ChoiceAssembler:
        params = self._params
        detokenizer = self._model.renderer.detokenizer(
            output.prompt_token_ids, params.skip_special_tokens
        )
        return ChoiceAssembler(
            detokenizer,
            stop=params.stop,
            include_stop=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
        )
