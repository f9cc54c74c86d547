"""Beam search without a server: the steps of all prompts run as one batch after the other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pagemill.engine.async_engine import Prompt
from pagemill.engine.beam_search import BeamOptions, beam_steps
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import check_prompt, longest_context, resolve_max_tokens
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.text_batch import Output, TextModel
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.structured.grammar import Grammar

_Steps = Generator[list[Prompt], list[ChoiceOutput], list[ChoiceOutput]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How `LLM.beam_search` searches."""

    beam_width: int
    """Outputs of a prompt, and beams that are followed; 1 to half the size of the vocabulary."""
    max_tokens: int = 16
    """Of each output."""
    length_penalty: float = 1.0
    """Outputs are ranked by the log probability of all their tokens, divided by the number of
    tokens to this power."""
    ignore_eos: bool = False
    """Outputs do not end before `max_tokens`."""


def search_beams(
    model: TextModel,
    prompts: Sequence[RenderedPrompt],
    params: BeamSearchParams,
    adapter: str,
    grammar: Grammar | None,
) -> list[Output]:
    """The outputs of each prompt, in its order; their choices are the best ones first. `grammar` is
    what each has to be.

    Raises:
        EngineError: a prompt is refused, or a step fails.
    """
    most = model.loaded.core.built.vocab_size // 2  # a step needs twice as many alternatives
    if not 1 <= params.beam_width <= most:
        message = f"`beam_width` must be 1 to {most} for this model, got {params.beam_width}."
        raise EngineError("INVALID_ARGUMENT", message, "beam_width")
    options = BeamOptions(
        width=params.beam_width,
        length_penalty=params.length_penalty,
        ends=() if params.ignore_eos else model.eos_token_ids,
        constrained=grammar is not None,
    )
    model.require_adapter(adapter)
    sampling = model.loaded.defaults.fill(SamplingParams())
    rounds = _Rounds(model, options.step_sampling(sampling), adapter, grammar)
    checked = [_checked(model, prompt, params.max_tokens) for prompt in prompts]
    steps = [beam_steps(prompt, options, keeps_logprobs=True) for prompt in checked]
    found = rounds.run(steps)
    return [
        _output(model, prompt, sampling, choices)
        for prompt, choices in zip(prompts, found, strict=True)
    ]


class _Rounds:
    """Runs a step of each search as one batch, until all searches have ended."""

    def __init__(
        self, model: TextModel, sampling: SamplingParams, adapter: str, grammar: Grammar | None
    ) -> None:
        self._model = model
        self._adapter = adapter
        self._grammar = grammar
        (self._child,) = child_sampling(sampling, max_tokens=1, eos_token_ids=model.eos_token_ids)

    def run(self, searches: Sequence[_Steps]) -> list[list[ChoiceOutput]]:
        """What each search returned."""
        found: dict[int, list[ChoiceOutput]] = {}
        outputs: dict[int, list[ChoiceOutput] | None] = dict.fromkeys(range(len(searches)))
        while outputs:
            wanted: dict[int, list[Prompt]] = {}
            for at, taken in outputs.items():
                try:
                    step = searches[at]
                    wanted[at] = next(step) if taken is None else step.send(taken)
                except StopIteration as end:
                    found[at] = end.value
            following = iter(self._step([each for step in wanted.values() for each in step]))
            outputs = {at: [next(following) for _ in step] for at, step in wanted.items()}
        return [found[at] for at in range(len(searches))]

    def _step(self, prompts: Sequence[Prompt]) -> list[ChoiceOutput]:
        ids = self._model.ids
        requests = [
            EngineRequest(
                prompt.rendered,
                (ChoiceRequest(next(ids), self._child),),
                grammar=self._grammar,
                adapter=self._adapter,
                num_written=prompt.num_written,
            )
            for prompt in prompts
        ]
        outputs: dict[int, ChoiceOutput] = {}

        def take(output: ChoiceOutput) -> None:
            outputs[output.index] = output

        OfflineBatch(self._model.queue, requests, take).run()
        return [outputs[index] for index in range(len(prompts))]


def _checked(model: TextModel, prompt: RenderedPrompt, max_tokens: int) -> Prompt:
    built = model.loaded.core.built
    check_prompt(prompt, built.vocab_size, "prompts")
    longest = longest_context(prompt, built.max_model_len, built.encoder_text)
    room = resolve_max_tokens(len(prompt), max_tokens, None, longest, "prompts")
    return Prompt(prompt, room)


def _output(
    model: TextModel,
    prompt: RenderedPrompt,
    sampling: SamplingParams,
    choices: Sequence[ChoiceOutput],
) -> Output:
    running = model.begin(prompt, sampling, len(choices))
    for each, choice in zip(running, choices, strict=True):
        each.take(choice)
    return running[0].output
