"""How the choices of a request are found, if each is not just sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from pagemill.config.sampling import LOGPROBS_MODES
from pagemill.engine.async_engine import Prompt
from pagemill.engine.beam_search import BeamOptions, BeamSearch
from pagemill.engine.best_of import BestOf
from pagemill.engine.output_stream import OutputStream
from pagemill.engine.request_stream import RequestStream
from pagemill.engine.sampling import SamplingParams
from pagemill.server.errors import bad_request

if TYPE_CHECKING:
    from pagemill.server.protocol.sampling import GenerationRequest


@dataclass(frozen=True, slots=True)
class MostLikely:
    """The `n` most likely of `count` sampled choices (`best_of`)."""

    count: int


@dataclass(frozen=True, slots=True)
class Beams:
    """Beam search with `n` beams (`use_beam_search`). `by_rules`: among the tokens that rules of a
    transcript leave."""

    length_penalty: float
    ignores_eos: bool
    by_rules: bool = False


ChoiceSearch = MostLikely | Beams


class Submit(Protocol):
    """Submits each prompt `sampling.n` times."""

    async def __call__(
        self, prompts: Sequence[Prompt], sampling: SamplingParams
    ) -> RequestStream: ...


# Steps of beam search are ranked by the model's own probabilities, unless there are constraints,
# and end with its own end.
_EXCLUDED = (
    *("logit_bias", "min_tokens", "stop_token_ids", "prompt_logprobs", "best_of"),
    *("allowed_token_ids", "bad_words", "thinking_token_budget", "kv_transfer_params"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logprob_token_ids", "repetition_detection", "return_routed_experts"),
)
_NEUTRAL = {"repetition_penalty": 1.0}
# Tokens of all beams of a request with constraints: each step reads those of all again, a
# microsecond or two each, by the one thread that fills masks.
_MAX_CONSTRAINED_TOKENS = 16_384
_LOGITS = ("raw_logits", "processed_logits")


def wanted_search(request: GenerationRequest, best_of: int | None = None) -> ChoiceSearch | None:
    """What the request says; None if its choices are sampled.

    Raises:
        ApiError: 400 for fields that exclude each other.
    """
    if request.use_beam_search:
        for name in _EXCLUDED:
            value: Any = best_of if name == "best_of" else getattr(request, name)
            if value and value != _NEUTRAL.get(name):
                raise bad_request(f"`use_beam_search` and `{name}` exclude each other.", name)
        return Beams(request.length_penalty, bool(request.ignore_eos))
    if best_of is None or best_of == request.n:
        return None
    if best_of < request.n:
        raise bad_request(f"`best_of` is {best_of}, and `n` is {request.n}.", "best_of")
    if request.stream:
        raise bad_request(
            "`best_of` cannot be streamed: which choice is the best is known at the end.", "best_of"
        )
    return MostLikely(best_of)


def check_search(
    search: ChoiceSearch,
    sampling: SamplingParams,
    max_logprobs: int,
) -> None:
    """Checks what `find_choices` needs. `max_logprobs`: of the server; -1 is the whole vocabulary.

    Raises:
        ApiError: 400: beams cannot be followed for this request, or choices not compared.
    """
    if not isinstance(search, Beams):
        if sampling.logprobs is not None and sampling.logprobs_mode in _LOGITS:
            raise bad_request(
                "`best_of` compares log probabilities; this server reports logits"
                " (--logprobs-mode). Leave out `logprobs` and `logprob_token_ids`.",
                "best_of",
            )
        return
    needed = 2 * sampling.n
    if 0 <= max_logprobs < needed:
        raise bad_request(
            f"Beam search with `n` = {sampling.n} needs {needed} log probabilities; this server"
            f" gives at most {max_logprobs} (--max-logprobs).",
            "n",
        )


async def find_choices(
    search: ChoiceSearch | None,
    submit: Submit,
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    eos_token_ids: Sequence[int],
    *,
    constrained: bool,
    max_tokens_param: str = "max_tokens",
) -> OutputStream:
    """The outputs of `sampling.n` choices of each prompt; `constrained`: they have a grammar, or
    plugins have a say in them. `max_tokens_param` is the field that limits their tokens.

    Raises:
        EngineError: the engine's refusal.
        ApiError: 400: beams with constraints may be too long.
    """
    keeps_logprobs = sampling.logprobs is not None
    match search:
        case None:
            return await submit(prompts, sampling)
        case MostLikely(count):
            more = structs.replace(sampling, n=count)
            if not keeps_logprobs:
                more = structs.replace(more, logprobs=0, logprobs_mode=LOGPROBS_MODES[0])
            stream = await submit(prompts, more)
            return BestOf(stream, sampling.n, count, keeps_logprobs=keeps_logprobs)
        case Beams():
            if constrained:
                _check_constrained(prompts, sampling.n, max_tokens_param)
            beams = BeamOptions(
                width=sampling.n,
                length_penalty=search.length_penalty,
                ends=() if search.ignores_eos else eos_token_ids,
                constrained=constrained or search.by_rules,
            )
            step = beams.step_sampling(sampling)
            found = BeamSearch(
                lambda beam_prompts: submit(beam_prompts, step),
                prompts,
                beams,
                keeps_logprobs=keeps_logprobs,
            )
            await found.wait_submitted()
            return found


def _check_constrained(prompts: Sequence[Prompt], width: int, param: str) -> None:
    longest = _MAX_CONSTRAINED_TOKENS // (width * len(prompts))
    if max(prompt.max_tokens for prompt in prompts) > longest:
        raise bad_request(
            "All beams of a request with structured output or `vllm_xargs` have at most"
            f" {_MAX_CONSTRAINED_TOKENS} tokens: `{param}` may be {longest} here, or leave out"
            " `use_beam_search`.",
            param,
        )
