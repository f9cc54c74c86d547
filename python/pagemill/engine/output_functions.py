"""Code beside the model that has a say in each output of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pagemill.engine.joint_matcher import joint_factory
from pagemill.engine.logits_processor import LogitsProcessor, in_turn
from pagemill.engine.token_matcher import TokenMatcher, TokenMatcherFactory


@dataclass(frozen=True)
class OutputFunctions:
    """Functions that the engine calls for each output; None: there is none."""

    token_matcher: TokenMatcherFactory | None = None
    """Makes what says which tokens may come next."""
    logits_processor: LogitsProcessor | None = None


NO_FUNCTIONS = OutputFunctions()


def joined(functions: Iterable[OutputFunctions]) -> OutputFunctions:
    """All of `functions` in one: a token may come if all matchers allow it, and logits go through
    the processors in turn."""
    functions = list(functions)
    matchers = [each.token_matcher for each in functions if each.token_matcher is not None]
    processors = [each.logits_processor for each in functions if each.logits_processor is not None]
    return OutputFunctions(joint_factory(matchers), in_turn(processors))


def continuing(
    functions: OutputFunctions, num_written: int, prompt_token_ids: np.ndarray
) -> OutputFunctions:
    """`functions` for an output that begins with the last `num_written` tokens of its prompt, as
    those of beams do: 1 or more."""
    written = prompt_token_ids[-num_written:].astype(np.int32)
    matcher, processor = functions.token_matcher, functions.logits_processor
    return OutputFunctions(
        None if matcher is None else _ContinuedFactory(matcher, written.tolist()),
        None if processor is None else _ContinuedProcessor(processor, written),
    )


class _ContinuedFactory:
    def __init__(self, make: TokenMatcherFactory, written: Sequence[int]) -> None:
        self._make = make
        self._written = written

    def __call__(self) -> TokenMatcher:
        """See `TokenMatcherFactory`."""
        matcher = self._make()
        for token_id in self._written:
            if not matcher.accept(token_id):
                raise ValueError(f"the output may not have token {token_id}, which it begins with")
        return matcher


class _ContinuedProcessor:
    def __init__(self, process: LogitsProcessor, written: np.ndarray) -> None:
        self._process = process
        self._written = written

    def __call__(
        self, prompt_token_ids: np.ndarray, output_token_ids: np.ndarray, logits: np.ndarray
    ) -> None:
        """See `LogitsProcessor`."""
        outputs = np.concatenate([self._written, output_token_ids])
        self._process(prompt_token_ids[: -len(self._written)], outputs, logits)
