"""What the pipeline needs beside prompts and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.render.output_parser import NOTHING, ParserOptions
from pagemill.server.access.caller import ANONYMOUS, Caller
from pagemill.server.choice_search import ChoiceSearch
from pagemill.server.grammar.constraint import Constraint
from pagemill.server.output_limits import NO_LIMITS, OutputLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """What the pipeline needs beside prompts and sampling.

    `max_tokens` is the client's own number; `default_max_tokens` applies if it gave none, and
    None means all the room there is. `param` and `max_tokens_param` name the fields that prompts
    and `max_tokens` came from. `truncation_side` is the end of the prompt that
    `truncate_prompt_tokens` cuts: "left" or "right". `priority`, `cache_salt` and
    `kv_transfer_params` are `AsyncEngine.submit`'s, as is the tenant of `caller`. `timeout_s` is
    from the arrival of `caller`'s request to its end; `deadline`, `Pipeline.deadline`'s, takes its
    place for one of several generations that answer a request together.
    """

    max_tokens: int | None
    default_max_tokens: int | None
    max_tokens_param: str = "max_tokens"
    truncate_prompt_tokens: int | None = None
    truncation_side: str = "left"
    cache_salt: str = ""
    timeout_s: float | None = None
    deadline: float | None = None
    priority: int = 0
    caller: Caller = ANONYMOUS
    kv_transfer_params: Mapping[str, str] = field(default_factory=dict[str, str])
    param: str = "prompt"
    constraint: Constraint | None = None
    """What each choice has to be."""
    limits: OutputLimits = NO_LIMITS
    """Tokens that no choice may have."""
    transcript: TranscriptRules | None = None
    """By which each choice is written, if it has no constraint."""
    search: ChoiceSearch | None = None
    """How choices are found; None: each is sampled."""
    parsed: ParserOptions = NOTHING
    """What is read out of the output beside text."""
    decoder: Sequence[int] = ()
    """What the decoder of an encoder-decoder begins with; empty: what the model says."""
