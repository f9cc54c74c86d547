"""Grammars with JSON Schemas in them, as grammars of llguidance alone."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagemill.structured.closed_objects import close_objects
from pagemill.structured.grammar import Grammar, GrammarError, schema_rule
from pagemill.structured.json_schema.errors import SchemaError
from pagemill.structured.json_schema.schema_grammar import SchemaGrammar, schema_grammar

_MAX_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Expanded:
    """The text of a grammar. `distinct`: see `SchemaGrammar`."""

    text: str
    distinct: str | None = None


def expand(grammar: Grammar) -> Expanded:
    """The grammar, with rules in place of its schemas. May take seconds.

    Raises:
        GrammarError: a schema is none, or cannot be honoured.
    """
    if not grammar.schemas:
        return Expanded(grammar.text)
    try:
        found = [_schema_grammar(text) for text in grammar.schemas]
    except SchemaError as error:
        raise GrammarError(str(error)[:_MAX_MESSAGE_CHARS]) from None
    except RecursionError:
        raise GrammarError("the schema is nested too deeply") from None
    if grammar.sole_schema is not None:
        return whole(found[0])
    if any(each.distinct is not None for each in found):
        raise GrammarError("`uniqueItems` can be honoured only where the whole output is JSON")
    (parsed,) = json.loads(grammar.text)["grammars"]
    rules = (f"{schema_rule(i)}: %lark {{\n{each.lark}\n}}" for i, each in enumerate(found))
    return Expanded(_lark("\n".join((parsed["lark_grammar"], *rules))))


def _lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]}, ensure_ascii=False)


def whole(schema: SchemaGrammar) -> Expanded:
    """The grammar of an output that is JSON of a schema."""
    return Expanded(_lark(schema.lark), schema.distinct)


@functools.cache
def metaschemas() -> dict[str, Any]:
    """The schemas of schemas of all drafts, by their URIs."""
    path = Path(__file__).parent / "json_schema" / "metaschemas.json"
    return json.loads(path.read_text())


def closed_schema(text: str) -> Any:
    """The schema of `Grammar.schemas`; objects have no other properties than it lists.

    Raises:
        RecursionError: it is nested too deeply.
    """
    schema: Any = json.loads(text)
    return close_objects(cast(dict[str, Any], schema)) if isinstance(schema, dict) else schema


def _schema_grammar(text: str) -> SchemaGrammar:
    return schema_grammar(closed_schema(text), metaschemas().get)
