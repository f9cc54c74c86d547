"""JSON Schema to a grammar of llguidance.

    grammar = schema_grammar({"type": "array", "items": {"enum": [1, 2]}}, find_document)

What is written is valid by the schema. Of valid JSON almost everything can be written, each value
in one spelling ([why](../../../../docs/decisions/0060-schemas-become-shapes.md)).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from pagemill.structured.json_schema.distinct_paths import distinct_paths
from pagemill.structured.json_schema.documents import FindDocument
from pagemill.structured.json_schema.errors import Budget, SchemaError, TooMuchError
from pagemill.structured.json_schema.lark_writer import LarkWriter
from pagemill.structured.json_schema.schema_shapes import SchemaShapes
from pagemill.structured.json_schema.values import ValueGraph


@dataclass(frozen=True, slots=True)
class SchemaGrammar:
    """A grammar in Lark. `distinct`: where it allows arrays more than their schemas, as nodes of
    `json_trace.Paths`."""

    lark: str
    distinct: str | None


_ATTEMPTS = ((256, 60_000), (24, 60_000), (4, 60_000), (1, 200_000))
"""Conjunctions that are kept of each intersection, and steps: where many alternatives overlap, less
valid JSON can be written."""


def schema_grammar(schema: Any, find_document: FindDocument) -> SchemaGrammar:
    """The grammar of JSON that is valid by `schema`.

    Raises:
        SchemaError: it is no schema, it allows nothing, or it cannot be said.
    """
    for most, steps in _ATTEMPTS[:-1]:
        with contextlib.suppress(TooMuchError):
            return _grammar(schema, find_document, most, Budget(steps))
    most, steps = _ATTEMPTS[-1]
    return _grammar(schema, find_document, most, Budget(steps))


def _grammar(schema: Any, find_document: FindDocument, most: int, budget: Budget) -> SchemaGrammar:
    try:
        shapes = SchemaShapes(schema, find_document, budget, most)
        graph = ValueGraph(shapes, budget)
    except RecursionError:
        raise SchemaError("the schema is nested too deeply") from None
    if not graph.is_possible(shapes.root):
        reasons = iter(shapes.unwritable.values())
        raise SchemaError(next(reasons, "no JSON that can be written is valid"))
    distinct = distinct_paths(graph, shapes.root)
    writer = LarkWriter(graph, budget, is_unique=distinct is not None)
    return SchemaGrammar(writer.grammar(shapes.root), distinct)
