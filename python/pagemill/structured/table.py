"""The back ends of grammars, and which of them a grammar goes to.

| back end | what it takes |
|---|---|
| xgrammar | JSON Schemas of `exact_schema`: it is faster, and runs without Python |
| guidance | everything: llguidance |

The choice depends on the grammar and on `--structured-outputs-backend`, on nothing else.
"""

from __future__ import annotations

from pagemill.structured.exact_schema import inexactness
from pagemill.structured.expansion import closed_schema
from pagemill.structured.grammar import Grammar, GrammarError

XGRAMMAR = "xgrammar"
GUIDANCE = "guidance"


def choose(grammar: Grammar, back_end: str) -> str:
    """The back end of `grammar`. `back_end`: the option, `auto` or one of them.

    Raises:
        GrammarError: the option wants one that does not take it.
    """
    if back_end == GUIDANCE:
        return GUIDANCE
    refusal = _refusal(grammar)
    if refusal is None:
        return XGRAMMAR
    if back_end == XGRAMMAR:
        raise GrammarError(f"{refusal}; --structured-outputs-backend auto takes it")
    return GUIDANCE


def _refusal(grammar: Grammar) -> str | None:
    """Why xgrammar does not take `grammar`, if it does not."""
    if grammar.sole_schema is None:
        return "the back end xgrammar takes JSON Schemas only"
    try:
        found = inexactness(closed_schema(grammar.sole_schema))
    except RecursionError:
        found = "schemas that are nested so deeply"
    return None if found is None else f"the back end xgrammar does not take {found}"
