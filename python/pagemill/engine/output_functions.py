"""Code beside the model that has a say in each output of a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pagemill.engine.joint_matcher import joint_factory
from pagemill.engine.logits_processor import LogitsProcessor, in_turn
from pagemill.engine.token_matcher import TokenMatcherFactory


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
