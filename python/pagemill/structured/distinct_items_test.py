"""Arrays of distinct items: tokens that may come, forth and back."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import json_schema
from pagemill.structured.testing.byte_tokenizer import (
    EOS,
    OTHER_EOS,
    ByteTokenizer,
    allowed,
    byte_vocabulary,
)
from pagemill.structured.testing.walks import random_walk


@pytest.fixture(name="compiler", scope="module")
def _compiler() -> GrammarCompiler:
    return GrammarCompiler(byte_vocabulary)


def distinct(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **keywords}


SCHEMAS = [
    distinct({"type": "string", "pattern": "^(yes|no|y[a-z]{1,2})$"}, minItems=3),
    distinct({"type": "boolean"}),
    distinct({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}),
    distinct({"anyOf": [{"type": "boolean"}, {"enum": list(range(70))}]}, minItems=20),
    distinct({"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "null"}}}),
    {"type": "object", "additionalProperties": distinct({"type": "integer"})},
    distinct(distinct({"pattern": "^[ab]$", "type": "string"})),
    {"type": "array", "prefixItems": [True, {"enum": [1, 2]}], "uniqueItems": True, "maxItems": 2},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_items_differ_and_there_is_always_a_token(
    compiler: GrammarCompiler, schema: dict[str, Any]
) -> None:
    begin = compiler.factory(json_schema(schema))
    rng = random.Random(3)
    walks = [random_walk(begin, rng, free=rng.choice((20, 100))) for _ in range(25)]
    assert not any(walk.is_dead for walk in walks)
    arrays = [json.loads(walk.text) for walk in walks if walk.is_ended]
    assert arrays
    for value in arrays:
        for array in [value] if isinstance(value, list) else value.values():
            texts = [json.dumps(item, sort_keys=True) for item in array]
            assert len(set(texts)) == len(texts)


def test_tokens_are_taken_back(compiler: GrammarCompiler) -> None:
    begin = compiler.factory(json_schema(distinct({"type": "string", "pattern": "^[ab]{1,2}$"})))
    rng = random.Random(4)
    matcher, kept = begin(), list[int]()
    for _ in range(150):
        if kept and rng.random() < 0.3:
            count = rng.randint(1, min(len(kept), 6))
            matcher.rollback(count)
            del kept[-count:]
        token = rng.choice([t for t in allowed(matcher) if t not in (EOS, OTHER_EOS)] or [EOS])
        if token == EOS:
            break
        assert matcher.accept(token)
        kept.append(token)
        fresh = begin()
        assert all(map(fresh.accept, kept))
        assert allowed(fresh) == allowed(matcher)


def test_a_token_that_is_left_out_is_refused(compiler: GrammarCompiler) -> None:
    matcher = compiler.factory(json_schema(distinct({"type": "string"})))()
    assert all(map(matcher.accept, b'["a","a'))
    assert ord('"') not in allowed(matcher)
    assert not matcher.accept(ord('"'))
    comma = next(t for t in range(EOS) if ByteTokenizer()[t] == b'", "')
    assert comma not in allowed(matcher) and not matcher.accept(comma)
    assert matcher.accept(ord("b")) and ord('"') in allowed(matcher)
