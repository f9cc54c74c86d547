"""Constraints to compiled grammars."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from pagemill.observe.metrics import RequestMetrics
from pagemill.render.output_machine import Formats
from pagemill.render.output_parser import ParserOptions
from pagemill.server.errors import bad_request
from pagemill.server.grammar.constraint import Constraint
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import Grammar, GrammarError, Reasoning

_LOGGER = logging.getLogger("pagemill.server")
_MAX_COMPILING = 2  # grammars at a time


class ConstraintCompiler:
    """Compiles a request's grammar before the request is submitted, so that a bad one is refused
    before anything runs."""

    def __init__(
        self, grammars: GrammarCompiler, formats: Formats, metrics: RequestMetrics
    ) -> None:
        self._grammars = grammars
        self._formats = formats
        self._metrics = metrics
        self._compiling = asyncio.Semaphore(_MAX_COMPILING)

    async def grammar(self, constraint: Constraint, parsed: ParserOptions) -> Grammar | None:
        """The grammar of an output that is `parsed`; None if an optional one cannot be compiled.

        Raises:
            ApiError: 400: it cannot be used.
        """
        if not await self._is_compiled(constraint):
            return None
        if constraint.spans_reasoning and self._formats.messages is not None:
            if parsed.begins is not None:
                raise bad_request(
                    f"`{constraint.param}` cannot be used with a prompt that ends within a"
                    " message, such as one that is continued.",
                    constraint.param,
                )
            return constraint.grammar
        if constraint.spans_reasoning or not parsed.reasoning:
            return constraint.grammar
        return self._behind_reasoning(constraint, parsed)

    async def _is_compiled(self, constraint: Constraint) -> bool:
        async with self._compiling:
            began = time.monotonic()
            try:
                is_new = await asyncio.to_thread(self._grammars.prepare, constraint.grammar)
            except GrammarError as error:
                self._metrics.grammar("refused")
                if constraint.is_optional:
                    _LOGGER.info("outputs are not constrained to calls: %s", error)
                    return False
                param = constraint.param
                raise bad_request(f"`{param}` cannot be used: {error}", param) from error
        if is_new:
            self._metrics.grammar("compiled", time.monotonic() - began)
        else:
            self._metrics.grammar("kept")
        return True

    def _behind_reasoning(self, constraint: Constraint, parsed: ParserOptions) -> Grammar:
        """The grammar, for what follows the model's reasoning."""
        tokens = self._formats.reasoning_tokens(parsed.begins)
        if self._formats.messages is not None or (
            tokens is not None and tokens.begins_within and not tokens.closers
        ):
            raise bad_request(
                f"`{constraint.param}` cannot be used with this model's format of reasoning, whose"
                " end is not one token.",
                constraint.param,
            )
        if tokens is None or not tokens.closers:
            return constraint.grammar
        return msgspec.structs.replace(constraint.grammar, reasoning=Reasoning(*tokens))
