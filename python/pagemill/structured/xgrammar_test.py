"""Both back ends of schemas: they admit the same texts, and masks differ where that is meant."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from pagemill.structured import table
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import (
    ANY_OBJECT,
    Grammar,
    GrammarError,
    Reasoning,
    json_schema,
    regex,
)
from pagemill.structured.matcher import GrammarMatcher
from pagemill.structured.testing.byte_tokenizer import (
    EOS,
    MODEL_VOCAB,
    OPENER,
    OTHER_EOS,
    THINK_END,
    ByteTokenizer,
    admits,
    allowed,
    byte_vocabulary,
)
from pagemill.structured.testing.schemas import random_schema

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["yes", "no/maybe", 12]}, "maxItems": 2},
    },
    "required": ["name"],
}
_SELF = {"$ref": "#/$defs/a"}
_ENDS = (EOS, OTHER_EOS)
_KEYWORDS = (
    "anyOf",
    "const",
    "enum",
    "items",
    "maxItems",
    "minimum",
    "not",
    "pattern",
    "properties",
)
_KEYWORDS += ("$defs", "$ref", "additionalProperties", "minItems", "required", "type")
_HOSTILE_VALUES = (
    None,
    True,
    -1,
    2**63,
    1e308,
    "",
    "#",
    "#/$defs/a",
    "(a{9}){9}",
    "\ud800",
    [],
    {},
)
_MEANT = {*b" \n\r\t", 0x7F}
"""White space is bounded in other ways; llguidance has no DEL in strings, which JSON allows."""
_SPELLINGS = re.compile(rb"(\\(u[0-9a-fA-F]{0,3})?|-)$")
"""Escapes: xgrammar allows those of all characters, llguidance of those that need one. No -0."""


@pytest.fixture(name="compilers", scope="module")
def _compilers() -> dict[str, GrammarCompiler]:
    names = (table.XGRAMMAR, table.GUIDANCE)
    return {name: GrammarCompiler(byte_vocabulary, name) for name in names}


def test_the_rule() -> None:
    assert table.choose(json_schema(PERSON), "auto") == table.XGRAMMAR
    assert table.choose(json_schema(PERSON), "guidance") == table.GUIDANCE
    pattern = json_schema(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    )
    assert table.choose(pattern, "auto") == table.GUIDANCE
    with pytest.raises(GrammarError, match="does not take `pattern` in `#/properties/a`"):
        table.choose(pattern, "xgrammar")
    assert table.choose(regex("a+"), "auto") == table.GUIDANCE
    deep = Grammar("start: schema0", schemas=("[" * 100_000 + "]" * 100_000,))
    assert table.choose(deep, "auto") == table.GUIDANCE
    with pytest.raises(GrammarError, match="xgrammar takes JSON Schemas only"):
        table.choose(regex("a+"), "xgrammar")


def test_each_back_end_makes_its_matchers(compilers: dict[str, GrammarCompiler]) -> None:
    made = {name: each.factory(json_schema(PERSON))() for name, each in compilers.items()}
    assert not isinstance(made[table.XGRAMMAR], GrammarMatcher)
    assert isinstance(made[table.GUIDANCE], GrammarMatcher)


@pytest.mark.parametrize("name", [table.XGRAMMAR, table.GUIDANCE])
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            PERSON,
            ['{"name":"é\\"\\u001f"}', '{ "name" : "" , "age": 150, "tags": []\n}'],
            ['{"age": 3}', '{"name": "a", "age": 151}', '{"name": "a", "x": 1}', '{"name": "\n"}'],
        ),
        (ANY_OBJECT, ["{}", '{"a": [1, {"b": null}], "": -1.5e3}'], ["[]", "1", "", '{"a": }']),
        ({"enum": ["a/b", "é", 3]}, ['"a/b"', '"é"', "3"], ['"a"', "33", '"a/b']),
        ({"type": "number", "minimum": 0.5}, ["0.5", "0.75", "12"], ["0.4", "-1", "0.5.1"]),
        (
            {**_SELF, "$defs": {"a": {"type": "array", "items": _SELF}}},
            ["[]", "[[], [[]]]"],
            ["[", "{}", "[1]"],
        ),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, ["null", "-7"], ["nul", "1.5", "07"]),
    ],
)
def test_the_same_texts(
    compilers: dict[str, GrammarCompiler],
    name: str,
    schema: dict[str, Any],
    good: list[str],
    bad: list[str],
) -> None:
    grammar = json_schema(schema)
    assert [text for text in good if not admits(compilers[name], grammar, text)] == []
    assert [text for text in bad if admits(compilers[name], grammar, text)] == []


def test_masks_differ_only_in_white_space_and_spelling(
    compilers: dict[str, GrammarCompiler],
) -> None:
    """Compares the masks along walks: of single bytes, except where one back end forces a token."""
    rng = random.Random(4)
    compared = 0
    for _ in range(60):
        grammar = json_schema(random_schema(rng))
        both = [compilers[name].factory(grammar)() for name in (table.XGRAMMAR, table.GUIDANCE)]
        written = b""
        for _ in range(40):
            masks = [{t for t in allowed(each) if t < 256 or t in _ENDS} for each in both]
            if min(map(len, masks)) > 1 and not _SPELLINGS.search(written):
                compared += 1
                assert masks[0] - _MEANT == masks[1] - _MEANT, grammar.schemas
            common = sorted(set(allowed(both[0])) & set(allowed(both[1])))
            if not common or common[0] in _ENDS:
                break
            token = rng.choice(common)
            assert both[0].accept(token) and both[1].accept(token)
            if token in _ENDS:
                break
            written += ByteTokenizer()[token]
    assert compared > 300


def test_random_walks_give_instances(compilers: dict[str, GrammarCompiler]) -> None:
    rng = random.Random(1)
    ended = 0
    for _ in range(80):
        schema = random_schema(rng)
        factory = compilers[table.XGRAMMAR].factory(json_schema(schema))
        text = walk(factory(), rng)
        if text is not None:
            ended += 1
            jsonschema.validate(json.loads(text.decode()), schema)
    assert ended > 60


def walk(matcher: Any, rng: random.Random) -> bytes | None:
    """A text that masks lead to, if it ends soon; tokens that close something are likelier."""
    written = b""
    for step in range(200):
        choices = allowed(matcher)
        closing = [t for t in choices if t in (*b'"}]0,', *_ENDS)]
        token = rng.choice(closing if closing and (step > 80 or rng.random() < 0.3) else choices)
        assert matcher.accept(token)
        if token in _ENDS:
            assert set(allowed(matcher)) == {*_ENDS}
            return written
        written += ByteTokenizer()[token]
    return None


def test_drafts_are_taken_back(compilers: dict[str, GrammarCompiler]) -> None:
    rng = random.Random(2)
    within = Reasoning((OPENER,), (THINK_END,), begins_within=True)
    grammar = json_schema(ANY_OBJECT)
    for reasoning in (None, within, Reasoning((OPENER,), (THINK_END,), begins_within=False)):
        factory = compilers[table.XGRAMMAR]._compiled(grammar)[0].behind(reasoning)
        matcher, kept = factory(), list[int]()
        for _ in range(100):
            if kept and rng.random() < 0.4:
                count = rng.randint(1, min(len(kept), 5))
                matcher.rollback(count)
                del kept[-count:]
            choices = allowed(matcher)
            markers = [t for t in (THINK_END, OPENER) if t in choices and rng.random() < 0.2]
            token = rng.choice(markers or choices)
            assert matcher.accept(token)
            kept.append(token)
            fresh = factory()
            assert all(map(fresh.accept, kept))
            assert allowed(fresh) == allowed(matcher)
            if token in _ENDS:
                break


def test_damaged_schemas_are_refused_or_hold() -> None:
    rng = random.Random(3)
    compiler = GrammarCompiler(byte_vocabulary)
    refused = 0
    for _ in range(200):
        try:
            matcher = compiler.factory(json_schema(damaged(random_schema(rng), rng)))()
        except GrammarError:
            refused += 1
            continue
        for _ in range(20):
            choices = allowed(matcher)
            if not choices or choices[-1] in _ENDS:
                break
            assert matcher.accept(rng.choice(choices))
    assert 10 < refused < 190


def damaged(schema: Any, rng: random.Random) -> Any:
    """`schema` with keywords and values that do not belong there."""
    if isinstance(schema, list):
        return [damaged(each, rng) for each in schema]
    if not isinstance(schema, dict):
        return rng.choice(_HOSTILE_VALUES) if rng.random() < 0.03 else schema
    result = {key: damaged(value, rng) for key, value in schema.items()}
    if rng.random() < 0.2:
        result[rng.choice(_KEYWORDS)] = rng.choice(_HOSTILE_VALUES)
    return result


def test_a_schema_that_nothing_satisfies_is_refused(compilers: dict[str, GrammarCompiler]) -> None:
    grammar = json_schema({"type": "integer", "minimum": 2, "maximum": 1})
    with pytest.raises(GrammarError, match="range"):
        compilers[table.XGRAMMAR].prepare(grammar)
    with pytest.raises(GrammarError, match="lone surrogate"):
        compilers[table.XGRAMMAR].prepare(json_schema({"description": "\ud800"}))


def test_a_mask_of_another_size_is_an_error(compilers: dict[str, GrammarCompiler]) -> None:
    matcher = compilers[table.XGRAMMAR].factory(json_schema(PERSON))()
    with pytest.raises(Exception, match="not as long as the vocabulary"):
        matcher.fill_mask(np.zeros(MODEL_VOCAB // 32 - 1, np.uint32))
