"""Texts that continue prompts, generated in one batch on the calling thread.

with contextlib.closing(TextBatch(model, prompts, params_of_each, None)) as batch:
    for delta in batch:
        ...            # as texts grow
batch.outputs          # all texts, in the order of the prompts
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import (
    check_prompt,
    check_stop,
    each_checked,
    longest_context,
    resolve_max_tokens,
)
from pagemill.engine.loading import LoadedModel
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch, OfflineQueue
from pagemill.engine.output_functions import NO_FUNCTIONS, OutputFunctions
from pagemill.engine.output_plugins import named_plugins
from pagemill.engine.outputs import ChoiceOutput, EngineError, TokenLogprobs
from pagemill.engine.sampling import SamplingParams
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.observe.choice_account import ChoiceAccount
from pagemill.observe.metrics import RequestMetrics
from pagemill.render.assembly import ChoiceAssembler, ChoiceDelta
from pagemill.render.token_id_renderer import AnyRenderer
from pagemill.structured.grammar import Grammar


@dataclass(slots=True)
class Choice:
    """One continuation. `token_ids` includes the token that stopped it; `text` does not.
    `routed_experts` [tokens, layers, choices] are those of the prompt's tokens and of `token_ids`
    but the last, if `return_routed_experts` asked for them."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    routed_experts: npt.NDArray[np.uint16] | None = None


@dataclass(slots=True)
class Output:
    """A prompt and its `n` continuations. `prompt_logprobs[i]` is of prompt token `i + 1`."""

    prompt_token_ids: list[int]
    choices: list[Choice]
    prompt_logprobs: list[TokenLogprobs] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextModel:
    """A loaded model, where its requests wait and are observed, and how its text is read; `ids` of
    requests that the engine has not had."""

    loaded: LoadedModel
    renderer: AnyRenderer
    queue: OfflineQueue
    metrics: RequestMetrics
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end every choice: those of the model and of its tokenizer."""
        built = self.loaded.core.built
        return tuple(dict.fromkeys((*built.eos_token_ids, *self.renderer.eos_token_ids)))

    def require_adapter(self, name: str) -> None:
        """Loads the adapter `name` if it is one that is loaded on demand; "" is none.

        Raises:
            EngineError: it cannot be loaded.
        """
        adapters = self.loaded.core.bindings.adapters
        if name and adapters is not None:
            adapters.require_adapter(name)

    def begin(self, prompt: RenderedPrompt, params: SamplingParams, n: int) -> list[RunningChoice]:
        """The choices of an output that continues `prompt`; `params` has every field."""
        output = Output(prompt.token_ids.tolist(), [Choice() for _ in range(n)])
        return [
            RunningChoice(
                output,
                choice,
                ChoiceAssembler(
                    self.renderer.detokenizer(output.prompt_token_ids, params.skip_special_tokens),
                    stop=params.stop,
                    include_stop=params.include_stop_str_in_output,
                    min_tokens=params.min_tokens,
                ),
                self.loaded.core.built.routed_experts or (1, 1),
            )
            for choice in output.choices
        ]


@dataclass(frozen=True, slots=True)
class RunningChoice:
    """A choice that is being generated."""

    output: Output
    choice: Choice
    assembler: ChoiceAssembler
    routing: tuple[int, int] = (1, 1)
    """Layers with experts, and how many each chooses."""
    account: ChoiceAccount = field(default_factory=ChoiceAccount)

    def take(self, update: ChoiceOutput) -> ChoiceDelta:
        """Adds an output of the engine."""
        delta = self.assembler.push(update)
        choice, output = self.choice, self.output
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        if delta.logprobs is not None:
            choice.logprobs = (choice.logprobs or []) + delta.logprobs
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason
        if update.routed_experts is not None:
            choice.routed_experts = update.routed_experts.reshape(-1, *self.routing)
        output.num_cached_tokens = max(output.num_cached_tokens, update.num_cached_tokens)
        if update.prompt_logprobs is not None:
            output.prompt_logprobs = update.prompt_logprobs
        return delta


@dataclass(slots=True)
class _PromptChoices:
    """The choices of one prompt among those of a batch."""

    first: int
    """The index of the first of them."""
    params: SamplingParams
    """With every field."""
    room: int
    """Tokens that each may have."""
    computed: int = 0
    """Tokens of the prompt that were not cached."""


class TextBatch:
    """Iterates over the deltas of all choices; `outputs` grows with what the engine gives, also
    while another batch of the queue waits. Close it to abort what runs."""

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[RenderedPrompt],
        stated: Sequence[SamplingParams],
        default_max_tokens: int | None,
        functions: OutputFunctions = NO_FUNCTIONS,
        grammar: Grammar | None = None,
        adapter: str = "",
    ) -> None:
        """Checks all requests; `submit` or the first iteration submits them.

        Args:
            model: where they run.
            prompts: each is continued `n` times.
            stated: what the caller chose for each; the model's defaults fill the rest.
            default_max_tokens: if `stated` has no `max_tokens`; None: all the room there is.
            functions: of the caller, for each output.
            grammar: what each output has to be.
            adapter: the name of the adapter to compute with; "": the model as it is.

        Raises:
            EngineError: a request is refused.
        """
        self._model = model
        self._grammar, self._adapter = grammar, adapter
        for each in {id(each): each for each in stated}.values():
            model.loaded.defaults.check(each)
            check_stop(each.stop, model.renderer.has_text)
        self._running: list[RunningChoice] = []
        self._prompts: list[_PromptChoices] = []
        self._of_choice: list[_PromptChoices] = []  # by choice
        self._arrived = 0.0
        self._unread: dict[int, ChoiceDelta] = {}  # by choice
        self._submitted = False
        self.outputs: list[Output] = []
        own = iter(stated)
        requests = each_checked(
            prompts, "prompts", lambda prompt: self._request(prompt, next(own), default_max_tokens)
        )
        model.require_adapter(adapter)
        self._batch = OfflineBatch(model.queue, requests, self._take, functions)

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._running)

    @property
    def ended(self) -> bool:
        """True once `outputs` is complete, or the batch failed."""
        return self._batch.ended

    @property
    def failure(self) -> EngineError | None:
        """Why the batch ended early."""
        return self._batch.failure

    def submit(self) -> None:
        """Submits the requests if they are not; does not wait."""
        if not self._submitted:
            self._submitted = True
            self._arrived = time.monotonic()
            self._batch.submit()
            if self.failure is None:
                for output, prompt in zip(self.outputs, self._prompts, strict=True):
                    prompt_tokens = len(output.prompt_token_ids)
                    self._model.metrics.submitted(prompt_tokens, prompt.room, prompt.params.n)

    def __iter__(self) -> Iterator[ChoiceDelta]:
        self.submit()
        while True:
            unread, self._unread = self._unread, {}
            yield from unread.values()
            if self._unread:
                continue
            if self.ended and self.failure is None:
                return
            self._batch.step()

    def fail(self, error: EngineError) -> None:
        """Ends the batch with `error`, unless it has ended."""
        self._batch.fail(error)

    def close(self) -> None:
        """Aborts what has not ended. Idempotent."""
        self._batch.close()
        reason = "abort" if self.failure is None else "error"
        for running in self._running:
            if self._submitted and not running.account.reason:
                running.account.reason = reason
                self._model.metrics.finished(reason)
                reason = "abort"  # of the siblings of one that failed

    def _take(self, update: ChoiceOutput) -> None:
        running = self._running[update.index]
        delta = running.take(update)
        self._observe(running, update, delta)
        if running.assembler.finished:
            self._batch.stop(update.index)  # the engine does not know of a stop string
        unread = self._unread.get(update.index)
        if unread is None:
            self._unread[update.index] = delta
        else:
            unread.extend(delta)

    def _observe(self, running: RunningChoice, update: ChoiceOutput, delta: ChoiceDelta) -> None:
        metrics, account = self._model.metrics, running.account
        prompt = self._of_choice[update.index]
        # Its siblings find what the first one has computed.
        if account.num_tokens == 0 and update.index == prompt.first:
            prompt_tokens = len(running.output.prompt_token_ids)
            prompt.computed = prompt_tokens - update.num_cached_tokens
        account.add_tokens(metrics, update.token_times[: len(delta.token_ids)], self._arrived)
        if delta.finish_reason is None:
            return
        account.end(metrics, update, delta.finish_reason, self._arrived)
        end = prompt.first + prompt.params.n
        siblings = [each.account for each in self._running[prompt.first : end]]
        longest = max(each.num_tokens for each in siblings)
        if longest and all(each.reason for each in siblings):
            metrics.prompt_ended(longest, prompt.computed)

    def _request(
        self, prompt: RenderedPrompt, stated: SamplingParams, default_max_tokens: int | None
    ) -> EngineRequest:
        model, params = self._model, self._model.loaded.defaults.fill(stated)
        built = model.loaded.core.built
        check_prompt(prompt, built.vocab_size, "prompts")
        longest = longest_context(prompt, built.max_model_len, built.encoder_text)
        room = resolve_max_tokens(
            len(prompt), stated.max_tokens, default_max_tokens, longest, "prompts"
        )
        children = child_sampling(params, max_tokens=room, eos_token_ids=model.eos_token_ids)
        of_prompt = _PromptChoices(len(self._running), params, room)
        self._prompts.append(of_prompt)
        self._of_choice += [of_prompt] * len(children)
        running = model.begin(prompt, params, len(children))
        self.outputs.append(running[0].output)
        self._running += running
        return EngineRequest(
            prompt,
            tuple(ChoiceRequest(next(model.ids), child) for child in children),
            grammar=self._grammar,
            adapter=self._adapter,
            return_routed_experts=params.return_routed_experts,
            plugins=named_plugins(params.extra_args),
        )
