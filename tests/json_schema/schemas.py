"""Schemas, and values that are valid by them or are not; matchers for any of them."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.expansion import Expanded, metaschemas, whole
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.json_schema.errors import SchemaError
from pagemill.structured.json_schema.schema_grammar import schema_grammar
from pagemill.structured.matcher import GrammarMatcher
from pagemill.structured.testing.byte_tokenizer import EOS, byte_vocabulary

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_REMOTES = "http://localhost:1234/"
Begin = Callable[[], GrammarMatcher]


@dataclass(frozen=True, slots=True)
class Group:
    """A schema of the official suite. `tests`: values, and whether they are valid."""

    name: str
    schema: Any
    tests: tuple[tuple[str, Any, bool], ...]


class Matchers:
    """Compiles schemas as they are: objects are not closed."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = {**metaschemas(), **documents}
        self._compiler = GrammarCompiler(byte_vocabulary, "guidance", self._expand)

    def begin(self, schema: Any) -> Begin:
        """Makes matchers of outputs.

        Raises:
            GrammarError: the schema is refused.
        """
        return self._compiler.factory(Grammar("", schemas=(json.dumps(schema),)))

    def _expand(self, grammar: Grammar) -> Expanded:
        try:
            return whole(schema_grammar(json.loads(grammar.schemas[0]), self._documents.get))
        except SchemaError as error:
            raise GrammarError(str(error)) from None


def official_suite(archive: Path) -> tuple[list[Group], dict[str, Any]]:
    """The groups of the suite in `jsonschema`'s source archive, and the documents it refers to."""
    groups: list[Group] = []
    remotes: dict[str, Any] = {}
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            parts = Path(member.name).parts[1:]
            content = opened.extractfile(member)
            if content is None or parts[:1] != ("json",) or not member.name.endswith(".json"):
                continue
            if parts[1] == "remotes":
                remotes[_REMOTES + "/".join(parts[2:])] = json.load(content)
            elif parts[1] == "tests" and parts[2] in DRAFTS:
                groups += _groups("/".join(parts[2:]), parts[2], json.load(content))
    return groups, remotes


def admits(begin: Begin, value: Any) -> bool:
    """Whether any spelling of `value` may be written."""
    texts = (json.dumps(each, ensure_ascii=False) for each in _orders(_plain(value)))
    return any(_accepts(begin(), text) for text in texts)


def _accepts(matcher: GrammarMatcher, text: str) -> bool:
    return all(map(matcher.accept, text.encode(errors="surrogatepass"))) and matcher.accept(EOS)


def _groups(name: str, draft: str, content: Any) -> Iterator[Group]:
    for group in content:
        schema = group["schema"]
        if isinstance(schema, dict):
            schema = {"$schema": DRAFTS[draft], **schema}
            if _asserts_format(name):
                del schema["$schema"]
        tests = tuple((t["description"], t["data"], t["valid"]) for t in group["tests"])
        yield Group(f"{name}: {group['description']}", schema, tests)


def _asserts_format(name: str) -> bool:
    """Whether tests assert `format`, which the `$schema` of newer drafts does not ask for."""
    return "/optional/format/" in name and not name.startswith(("draft4", "draft6", "draft7"))


def _plain(value: Any) -> Any:
    """`value` with integers as digits: 1.0 is written 1."""
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _orders(value: Any) -> Iterator[Any]:
    """`value`, and with its properties in other orders: a grammar has them in one."""
    yield value
    if isinstance(value, dict):
        if 1 < len(value) < 5:
            yield from map(dict, itertools.permutations(value.items()))
        for name, inner in value.items():
            if isinstance(inner, dict) and 1 < len(inner) < 4:
                for order in itertools.permutations(inner.items()):
                    yield {**value, name: dict(order)}
