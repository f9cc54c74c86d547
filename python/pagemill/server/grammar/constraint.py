"""What an output has to be, as a grammar and the field of the request that says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagemill.structured.grammar import Grammar


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A grammar for each choice of a request.

    `param` is the field that it came from. `schema`: the output is JSON of this JSON Schema.
    `spans_reasoning`: the grammar is of the whole output; else of what follows the reasoning.
    `is_optional`: without it, if it cannot be compiled.
    """

    grammar: Grammar
    param: str
    schema: dict[str, Any] | bool | None = None
    spans_reasoning: bool = False
    is_optional: bool = False
