"""One request whose input comes in parts and turns (docs/scheduling.md#input-in-parts-and-turns).

def inputs():
    yield StreamingInput("A long document, ", ends_turn=False)  # computed while the rest comes
    yield "and a question."
    yield " Another question."  # taken when the output of the first turn has been read

for output in llm.generate_turns(inputs(), max_tokens=40):
    print(output.choices[0].text)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Sequence
from dataclasses import dataclass

from pagemill.engine.async_engine import choice_output
from pagemill.engine.fan_out import child_sampling
from pagemill.engine.limits import check_prompt, resolve_max_tokens, text_prompt
from pagemill.engine.loading import model_facts
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.native import NativeOutput
from pagemill.engine.offline_batch import OfflineBatch
from pagemill.engine.offline_prompts import Text
from pagemill.engine.output_plugins import named_plugins
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.sampling import SamplingParams
from pagemill.engine.text_batch import Output, RunningChoice, TextModel
from pagemill.inputs.rendered_prompt import InputChunk, RenderedPrompt
from pagemill.structured.grammar import Grammar

_NOTHING = RenderedPrompt.of(())


@dataclass(frozen=True, slots=True)
class StreamingInput:
    """A part of a request's input: a text, or token ids."""

    prompt: Text
    ends_turn: bool = True
    """Whether the model generates after it; else it waits for more input."""


class TurnRequest:
    """What the engine gets of such a request, and the output of its current turn."""

    def __init__(
        self,
        model: TextModel,
        stated: SamplingParams,
        default_max_tokens: int,
        grammar: Grammar | None,
        adapter: str,
    ) -> None:
        """Checks what does not depend on inputs; see `TextBatch` for the arguments.

        Raises:
            EngineError: a field does not go with turns.
        """
        self.model = model
        self._stated, self._default_max_tokens = stated, default_max_tokens
        self._grammar, self._adapter = grammar, adapter
        model.loaded.defaults.check(stated)
        self._params = model.loaded.defaults.fill(stated)
        if self._params.stop:
            message = "`stop` does not go with turns, which the engine ends: use `stop_token_ids`."
            raise EngineError("INVALID_ARGUMENT", message, "stop")
        self._id = next(model.ids)
        self._context: list[int] = []  # all input and output so far
        self._turn: RunningChoice | None = None
        self.has_input = False
        """Whether the current turn has input, and has not ended."""
        self.failure: EngineError | None = None
        """Why the request ended early."""

    def chunk(self, given: Text | StreamingInput) -> InputChunk:
        """The next input as the engine takes it.

        Raises:
            EngineError: it is empty, or has an unknown token.
        """
        part = given if isinstance(given, StreamingInput) else StreamingInput(given)
        prompt = self._tokens(part.prompt)
        check_prompt(prompt, self.model.loaded.core.built.vocab_size, "inputs")
        self._context += prompt.token_ids.tolist()
        self.has_input = True
        if part.ends_turn:
            self.begin_turn()
        return InputChunk(prompt, "turn" if part.ends_turn else "more")

    def begin_turn(self) -> None:
        """The input of the turn is complete."""
        (self._turn,) = self.model.begin(RenderedPrompt.of(self._context), self._params, 1)

    def engine_request(self, prompt: RenderedPrompt) -> EngineRequest:
        """The request, with the first part of its input.

        Raises:
            EngineError: the part and `max_tokens` do not fit the model, or a parameter is none.
        """
        room = resolve_max_tokens(
            len(prompt),
            self._stated.max_tokens,
            self._default_max_tokens,
            self.model.loaded.core.built.max_model_len,
            "inputs",
        )
        (sampling,) = child_sampling(
            self._params, max_tokens=room, eos_token_ids=self.model.eos_token_ids
        )
        self.model.require_adapter(self._adapter)
        return EngineRequest(
            prompt,
            (ChoiceRequest(self._id, sampling),),
            streaming_input=True,
            grammar=self._grammar,
            adapter=self._adapter,
            plugins=named_plugins(self._params.extra_args),
        )

    def take(self, update: ChoiceOutput) -> None:
        """Adds an output of the engine."""
        self.failure = update.error or self.failure
        if self._turn is None or update.error is not None:
            return
        self._turn.take(update)
        self._context += update.token_ids
        if update.finish_reason is not None:
            self.has_input = False

    @property
    def output(self) -> Output:
        """That of the turn which has ended last."""
        assert self._turn is not None
        return self._turn.output

    def _tokens(self, text: Text) -> RenderedPrompt:
        if isinstance(text, str):
            begins = not self._context
            text = self.model.renderer.encode(text, add_special_tokens=begins, parse_special=True)
        return text_prompt(text, "inputs")


def run_turns(request: TurnRequest, inputs: Iterable[Text | StreamingInput]) -> Generator[Output]:
    """The output of each turn, on the calling thread; see `LLM.generate_turns`."""
    batch: OfflineBatch | None = None
    try:
        for given in inputs:
            chunk = request.chunk(given)
            if batch is None:
                first = request.engine_request(chunk.prompt)
                batch = OfflineBatch(request.model.queue, [first], request.take)
                batch.submit()
                chunk = InputChunk(_NOTHING, chunk.part)
            if len(chunk.prompt) or chunk.part == "turn":
                batch.extend(0, chunk)
            if chunk.part == "turn":
                yield _turn_output(request, batch)
            if batch.ended:  # the context is full
                return
        if batch is not None and request.has_input:
            request.begin_turn()
            batch.extend(0, InputChunk(_NOTHING, "last"))
            yield _turn_output(request, batch)
    finally:
        if batch is not None:
            batch.close()


def _turn_output(request: TurnRequest, batch: OfflineBatch) -> Output:
    while request.has_input:
        batch.step()
    return request.output


class _TurnClient:
    """A client of the engine for one request, on the running event loop."""

    def __init__(self, request: TurnRequest) -> None:
        self._request = request
        loaded = request.model.loaded
        self._client = LocalClient(loaded.core.bindings, model_facts(loaded))
        self._news = asyncio.Event()
        self._id: int | None = None
        self.ended = False

    async def start(self, prompt: RenderedPrompt) -> None:
        """Submits the request. Raises EngineError."""
        await self._client.start(self._on_outputs, self._on_lost)
        request = self._request.engine_request(prompt)
        await self._client.submit([request])
        self._id = request.choices[0].id

    async def extend(self, chunk: InputChunk) -> None:
        """Appends input. Raises EngineError."""
        assert self._id is not None
        await self._client.extend(self._id, chunk)

    async def turn_output(self) -> Output:
        """Waits for the end of the turn. Raises EngineError."""
        while self._request.has_input:
            if self._request.failure is not None:
                raise self._request.failure
            self._news.clear()
            await self._news.wait()
        return self._request.output

    async def close(self) -> None:
        """Aborts the request if it has not ended."""
        await self._client.close()

    def _on_outputs(self, outputs: Sequence[NativeOutput]) -> None:
        for output in outputs:
            self.ended = output.finish_reason is not None
            self._request.take(choice_output(output, 0, time.monotonic()))
        self._news.set()

    def _on_lost(self, error: EngineError) -> None:
        self._request.failure = error
        self._news.set()


async def run_turns_async(
    request: TurnRequest, inputs: AsyncIterable[Text | StreamingInput]
) -> AsyncGenerator[Output]:
    """The output of each turn, on the running event loop; see `LLM.generate_turns_async`."""
    client: _TurnClient | None = None
    try:
        async for given in inputs:
            chunk = request.chunk(given)
            if client is None:
                client = _TurnClient(request)
                await client.start(chunk.prompt)
                chunk = InputChunk(_NOTHING, chunk.part)
            if len(chunk.prompt) or chunk.part == "turn":
                await client.extend(chunk)
            if chunk.part == "turn":
                yield await client.turn_output()
            if client.ended:  # the context is full
                return
        if client is not None and request.has_input:
            request.begin_turn()
            await client.extend(InputChunk(_NOTHING, "last"))
            yield await client.turn_output()
    finally:
        if client is not None:
            await client.close()
