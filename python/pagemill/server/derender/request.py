"""A request that was rendered, as far as its answer depends on it.

The prompts are rendered again: how a prompt ends says whether the output begins with reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagemill.render.assembly import ChoiceAssembler
from pagemill.server.access.caller import Caller
from pagemill.server.chat import checked_chat
from pagemill.server.chat_wording import ChatWording
from pagemill.server.completion import as_rendered, fitted_prompts
from pagemill.server.completion_wording import CompletionWording
from pagemill.server.errors import bad_request
from pagemill.server.model_info import ModelInfo
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.completion import CompletionRequest
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.protocol.usage import PromptTokensDetails, Usage
from pagemill.server.records.timings import RequestTimings


@dataclass(slots=True)
class Derendered:
    """Implements `respond.Generated` for what another server has generated."""

    prompts: Sequence[np.ndarray]
    num_samples: int
    """Choices of each."""
    usage: Usage
    kv_transfer_params: dict[str, str] = field(default_factory=dict)
    timings: RequestTimings = field(default_factory=RequestTimings)

    @property
    def num_choices(self) -> int:
        """See `respond.Generated`."""
        return len(self.prompts) * self.num_samples

    @property
    def prompt_usage(self) -> Usage:
        """See `respond.Generated`."""
        tokens = self.usage.prompt_tokens
        return Usage(tokens, 0, tokens, self.usage.prompt_tokens_details)

    def prompt_number(self, index: int) -> int:
        """See `respond.Generated`."""
        return index // self.num_samples


Wording = ChatWording | CompletionWording


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """Its prompts, what reads an output, and what writes an answer with a name, which begins with
    `prefix`."""

    model: ModelInfo
    prompts: Sequence[np.ndarray]
    num_samples: int
    """Choices of each prompt."""
    reader: Callable[[np.ndarray], ChoiceAssembler]
    """What reads a choice that follows a prompt."""
    wording: Callable[[str, Derendered], Wording]
    prefix: str

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self.prompts) * self.num_samples

    def derendered(self, num_tokens: int) -> Derendered:
        """What has `num_tokens` tokens of output."""
        prompt_tokens = sum(map(len, self.prompts))
        total = prompt_tokens + num_tokens
        usage = Usage(prompt_tokens, num_tokens, total, PromptTokensDetails(0))
        return Derendered(self.prompts, self.num_samples, usage)

    def assembler(self, index: int) -> ChoiceAssembler:
        """What reads choice `index`."""
        return self.reader(self.prompts[index // self.num_samples])


async def rendered_chat(pipeline: Pipeline, chat: ChatRequest, caller: Caller) -> RenderedRequest:
    """A chat that was rendered.

    Raises:
        ApiError: it cannot be served.
    """
    prompt, sampling, options = await checked_chat(pipeline, chat, caller)
    (fitted,) = pipeline.fit([prompt], options)
    token_ids = [fitted.rendered.token_ids]

    def reader(prompt: np.ndarray) -> ChoiceAssembler:
        return pipeline.assembler(prompt, sampling, options)

    def wording(name: str, derendered: Derendered) -> ChatWording:
        return ChatWording(pipeline, chat, name, derendered)

    return RenderedRequest(pipeline.model, token_ids, sampling.n, reader, wording, "chatcmpl")


async def rendered_completion(pipeline: Pipeline, request: CompletionRequest) -> RenderedRequest:
    """A completion that was rendered.

    Raises:
        ApiError: it cannot be served, or the answer is made of more than its outputs.
    """
    if request.echo or request.prompt_logprobs is not None:
        raise bad_request(
            "`completion_request` cannot have `echo` or `prompt_logprobs`: they are of the prompt,"
            " which nothing generated tells.",
            "completion_request",
        )
    request = as_rendered(pipeline, request)
    sampling = to_sampling(
        request,
        logprobs=request.logprobs,
        prompt_logprobs=None,
        max_logprobs=pipeline.model.max_logprobs,
    )
    prompts, options = await fitted_prompts(pipeline, request)
    token_ids = [prompt.rendered.token_ids for prompt in prompts]

    def reader(prompt: np.ndarray) -> ChoiceAssembler:
        return pipeline.assembler(prompt, sampling, options)

    def wording(name: str, derendered: Derendered) -> CompletionWording:
        return CompletionWording(pipeline, request, name, derendered)

    return RenderedRequest(pipeline.model, token_ids, sampling.n, reader, wording, "cmpl")
