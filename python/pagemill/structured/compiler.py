"""Grammars to matchers of outputs, by the back ends of `table`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.token_table import TokenTable
from pagemill.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pagemill.structured.expansion import Expanded
    from pagemill.structured.guidance import GuidanceBackEnd
    from pagemill.structured.matcher import Compiled, Factory
    from pagemill.structured.xgrammar import XgrammarBackEnd

_MAX_KEPT = 64
_MAX_KEPT_CHARS = 2**22
_Key = tuple[str, tuple[str, ...]]


class GrammarCompiler:
    """Makes matchers for one model. Thread-safe; keeps the latest grammars.

    `open_vocabulary` is called once, for the first grammar, and back ends are imported then: a
    model that is asked for none pays nothing. `back_end`: `auto`, or the one of `table` that every
    grammar has to go to.
    """

    def __init__(
        self,
        open_vocabulary: Callable[[], Vocabulary] | None = None,
        back_end: str = "auto",
        expand: Callable[[Grammar], Expanded] | None = None,
    ) -> None:
        """`open_vocabulary` may be set later, before the first grammar. `expand`: what makes rules
        of schemas, for llguidance; None: `expansion.expand`."""
        self.open_vocabulary = open_vocabulary
        self._back_end = back_end
        self._expand = expand
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None
        self._tokens: TokenTable | None = None
        self._guidance: GuidanceBackEnd | None = None
        self._xgrammar: XgrammarBackEnd | None = None
        self._kept: OrderedDict[_Key, Compiled] = OrderedDict()
        self._num_kept_chars = 0

    def vocabulary(self) -> Vocabulary:
        """The model's tokens. May take a second at first: call it in a thread.

        Raises:
            GrammarError: no tokenizer is loaded.
        """
        with self._lock:
            return self._opened_vocabulary()

    def prepare(self, grammar: Grammar) -> bool:
        """Compiles `grammar`; False if it was kept. May take a second: call it in a thread.

        Raises:
            GrammarError: it is no grammar, too large a one, or none for the back end that the
                option names.
        """
        return self._compiled(grammar)[1]

    def factory(self, grammar: Grammar) -> Factory:
        """Makes the matchers of outputs (`engine.token_matcher.TokenMatcherFactory`).

        Raises:
            GrammarError: see `prepare`.
        """
        return self._compiled(grammar)[0].behind(grammar.reasoning)

    def _compiled(self, grammar: Grammar) -> tuple[Compiled, bool]:
        """The compiled grammar, and whether it is new."""
        from pagemill.structured import table

        key = (grammar.text, grammar.schemas)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept, False
        back_end = table.choose(grammar, self._back_end)
        with self._lock:
            opened = self._opened(back_end == table.XGRAMMAR)
        compiled = opened.compile(grammar)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = compiled
                self._num_kept_chars += compiled.num_chars
            while len(self._kept) > _MAX_KEPT or self._num_kept_chars > _MAX_KEPT_CHARS:
                _, dropped = self._kept.popitem(last=False)
                self._num_kept_chars -= dropped.num_chars
        return compiled, True

    def _opened(self, is_xgrammar: bool) -> GuidanceBackEnd | XgrammarBackEnd:
        from pagemill.structured.expansion import expand
        from pagemill.structured.guidance import GuidanceBackEnd
        from pagemill.structured.xgrammar import XgrammarBackEnd

        if self._tokens is None:
            self._tokens = TokenTable(self._opened_vocabulary())
        if is_xgrammar:
            self._xgrammar = self._xgrammar or XgrammarBackEnd(self._tokens)
            return self._xgrammar
        self._guidance = self._guidance or GuidanceBackEnd(self._tokens, self._expand or expand)
        return self._guidance

    def _opened_vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            if self.open_vocabulary is None:
                raise GrammarError("no tokenizer is loaded, so outputs cannot be constrained")
            self._vocabulary = self.open_vocabulary()
        return self._vocabulary
