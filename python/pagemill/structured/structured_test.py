"""Grammars: what they admit, what they refuse, and matchers that go forth and back."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest

from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.grammar import (
    ANY_OBJECT,
    Grammar,
    GrammarError,
    Reasoning,
    as_text,
    choice,
    json_schema,
    lark,
    of_text,
    regex,
)
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
from pagemill.structured.vocabulary import Vocabulary


@pytest.fixture(name="compiler", scope="module", params=["auto", "guidance"])
def _compiler(request: pytest.FixtureRequest) -> GrammarCompiler:
    return GrammarCompiler(byte_vocabulary, request.param)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (
            json_schema(PERSON),
            ['{"name": "Bob"}', '{"name":"é","age":-3}', '{ "name" : "" }'],
            ['{"age": 3}', '{"name": "Robert"}', '{"name": "Bob", "x": 1}', '{"name": "Bob"', "[]"],
        ),
        (
            json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}),
            ["{}", '{"a": 1}'],
            ['{"b": 1}', '{"a": 1, "b": 1}'],
        ),
        (json_schema(ANY_OBJECT), ["{}", '{"a": [1, {"b": null}]}'], ["[]", "1", "", '{"a": }']),
        (json_schema(True), ["1", '"x"', "[]"], ["x", ""]),
        (regex(r"[a-c]+/\d{2}\n?"), ["abc/12", "a/99\n"], ["abc", "d/12", "a/123"]),
        (regex("a\nb"), ["a\nb"], ["ab"]),
        (choice(["yes", "no", 'q"\\', "two\nlines"]), ["yes", "no", 'q"\\', "two\nlines"], ["ye"]),
        (lark('start: "a" b\nb: /[0-9]/ | b "," b'), ["a1", "a1,2,3"], ["a", "a1,"]),
    ],
)
def test_what_a_grammar_admits(
    compiler: GrammarCompiler, grammar: Grammar, good: list[str], bad: list[str]
) -> None:
    assert [text for text in good if not admits(compiler, grammar, text)] == []
    assert [text for text in bad if admits(compiler, grammar, text)] == []


class GappyTokenizer(ByteTokenizer):
    """No token has the byte 0xF1, and texts are encoded without it."""

    def __getitem__(self, token_id: int) -> bytes:
        return b"" if token_id == 0xF1 else super().__getitem__(token_id)

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        return [byte for byte in text.encode() if byte != 0xF1]


def test_text_that_the_vocabulary_cannot_spell() -> None:
    compiler = GrammarCompiler(lambda: Vocabulary(GappyTokenizer(), MODEL_VOCAB, (EOS,)))
    matcher = compiler.factory(choice(["a\U000564d8"]))()
    assert matcher.accept(ord("a"))
    assert allowed(matcher) == []
    matcher = compiler.factory(choice(["a\U000564d8", "ab"]))()
    assert matcher.accept(ord("a"))
    assert allowed(matcher) == [ord("b")]


def test_random_walks_give_instances(compiler: GrammarCompiler) -> None:
    rng = random.Random(1)
    factory = compiler.factory(json_schema(PERSON))
    ended = 0
    for _ in range(60):
        matcher, written = factory(), b""
        for _ in range(80):
            token = rng.choice(allowed(matcher))
            assert matcher.accept(token)
            if token in (EOS, OTHER_EOS):
                person = json.loads(written)
                assert len(person["name"]) <= 5 and set(person) <= {"name", "age"}
                assert set(allowed(matcher)) <= {EOS, OTHER_EOS}
                ended += 1
                break
            written += ByteTokenizer()[token]
    assert ended > 10


def test_drafts_are_taken_back(compiler: GrammarCompiler) -> None:
    rng = random.Random(2)
    within = Reasoning((OPENER,), (THINK_END,), begins_within=True)
    for reasoning in (None, within, msgspec.structs.replace(within, begins_within=False)):
        grammar = msgspec.structs.replace(json_schema(ANY_OBJECT), reasoning=reasoning)
        matcher = compiler.factory(grammar)()
        kept: list[int] = []
        for _ in range(120):
            if kept and rng.random() < 0.4:
                count = rng.randint(1, min(len(kept), 5))
                matcher.rollback(count)
                del kept[-count:]
            choices = allowed(matcher)
            for token in (THINK_END, OPENER):
                if token in choices and rng.random() < 0.2:
                    choices = [token]
            token = rng.choice([t for t in choices if t not in (EOS, OTHER_EOS)] or choices)
            assert matcher.accept(token)
            kept.append(token)
            if token in (EOS, OTHER_EOS):
                break
            fresh = compiler.factory(grammar)()
            assert all(fresh.accept(t) for t in kept)
            assert allowed(fresh) == allowed(matcher)


def test_a_token_that_may_not_come_changes_nothing(compiler: GrammarCompiler) -> None:
    matcher = compiler.factory(choice(["yes"]))()
    before = allowed(matcher)
    assert not matcher.accept(ord("n"))
    assert allowed(matcher) == before
    assert matcher.accept(ord("y"))


def test_reasoning_is_free(compiler: GrammarCompiler) -> None:
    for begins_within in (True, False):
        reasoning = Reasoning((OPENER,), (THINK_END,), begins_within)
        matcher = compiler.factory(Grammar(choice(["yes"]).text, reasoning))()
        if not begins_within:
            assert allowed(matcher) == [ord("y"), OPENER]
            assert matcher.accept(OPENER)
        for byte in b"Hm, no.":
            assert matcher.accept(byte)
        assert len(allowed(matcher)) == MODEL_VOCAB
        assert matcher.accept(THINK_END)
        assert allowed(matcher) == [ord("y")]  # as `encode` writes it
        assert not matcher.accept(OPENER)


def test_reasoning_may_be_left_out(compiler: GrammarCompiler) -> None:
    reasoning = Reasoning((OPENER,), (THINK_END,), begins_within=False)
    matcher = compiler.factory(Grammar(choice(["yes"]).text, reasoning))()
    assert matcher.accept(ord("y"))
    assert not matcher.accept(OPENER)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objec"}, "objec"),
        ({"$ref": "#/nope"}, "/nope"),
        ({"type": "string", "pattern": "(a"}, "parenthesis"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no JSON"),
    ],
)
def test_a_bad_schema_is_refused(
    compiler: GrammarCompiler, schema: dict[str, Any], message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.prepare(json_schema(schema))


def test_bad_grammars_are_refused(compiler: GrammarCompiler) -> None:
    for grammar in (regex("(a"), lark("start: missing"), lark("begin: x"), Grammar("{")):
        with pytest.raises(GrammarError):
            compiler.prepare(grammar)
    with pytest.raises(GrammarError, match="0 choices"):
        choice([])
    with pytest.raises(GrammarError, match="characters; at most"):
        regex("a" * 2**19)
    with pytest.raises(GrammarError, match="no tokenizer is loaded"):
        GrammarCompiler().prepare(json_schema(ANY_OBJECT))


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


BOMBS = {
    "regex": regex("(a{1000}){1000}"),
    "alternatives": regex("(" + "|".join(f".*{i}.*" for i in range(2000)) + ")+"),
    "nested": json_schema(nested(100)),
    "nested deeply": json_schema(nested(450)),
    "large numbers": json_schema({"type": "integer", "minimum": 10**4000, "maximum": 10**4200}),
    "overlapping": json_schema(
        {"oneOf": [{"properties": {f"k{i}": {"minLength": i}}} for i in range(60)]}
    ),
    "rules": lark("start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(9999)) + 'r9999: "a"'),
    "deep": Grammar('{"grammars": [{"json_schema": ' + "[" * 100_000 + "]" * 100_000 + "}]}"),
    "properties": json_schema({"properties": {f"k{i}": {"type": "string"} for i in range(5000)}}),
    "repeated": json_schema({"type": "array", "items": PERSON, "minItems": 10**9}),
    "references": json_schema(
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}, "$ref": "#/$defs/a"}
    ),
    "lark": lark("start: a\n" + "".join(f"r{i}: r{i + 1} r{i + 1}\n" for i in range(2000))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_bounded(name: str) -> None:
    compiler = GrammarCompiler(byte_vocabulary)
    begun = time.thread_time()
    try:
        matcher = compiler.factory(BOMBS[name])()
        allowed(matcher)
    except (GrammarError, RuntimeError):
        pass
    assert time.thread_time() - begun < 10


def test_what_must_follow_is_known(compiler: GrammarCompiler) -> None:
    grammar = lark('start: "ab" /[xy]/ "cde"')
    matcher = compiler.factory(grammar)()
    assert matcher.forced(8) == [*b"ab"]
    assert matcher.forced(1) == [*b"a"]
    assert all(map(matcher.accept, b"ab"))
    assert matcher.forced(8) == []  # there is a choice
    assert matcher.accept(ord("y"))
    assert matcher.forced(8) == [*b"cde"]
    assert all(map(matcher.accept, b"cde")) and matcher.forced(8) == []
    reasoning = Reasoning((OPENER,), (THINK_END,), begins_within=True)
    matcher = compiler.factory(msgspec.structs.replace(grammar, reasoning=reasoning))()
    assert matcher.forced(8) == []
    assert matcher.accept(THINK_END) and matcher.forced(8) == [*b"ab"]


class MarkingTokenizer(ByteTokenizer):
    """Finds a marker in any text."""

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        parts = text.split("</think>")
        tokens = [*parts[0].encode()]
        for part in parts[1:]:
            tokens += [THINK_END, *part.encode()]
        return tokens


def test_text_is_never_a_marker() -> None:
    compiler = GrammarCompiler(lambda: Vocabulary(MarkingTokenizer(), MODEL_VOCAB, (EOS,)))
    grammar = lark('start: "</think>!"')
    matcher = compiler.factory(grammar)()
    assert allowed(matcher) == [ord("<")] and matcher.forced(99) == [*b"</think>!"]
    assert admits(compiler, grammar, "</think>!")


def test_few_grammars_are_kept(compiler: GrammarCompiler) -> None:
    for index in range(200):
        compiler.prepare(choice([f"option {index}"]))
    assert len(compiler._kept) <= 64
    assert compiler._num_kept_chars == sum(k.num_chars for k in compiler._kept.values())


def test_a_grammar_with_schemas_is_one_text() -> None:
    sole = json_schema({"type": "object"})
    within = Grammar(lark("start: schema0").text, schemas=sole.schemas)
    for grammar in (sole, within, lark("start: /a+/")):
        assert of_text(as_text(grammar)) == grammar
    assert of_text(as_text(sole)).sole_schema is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"grammar": "start: schema0", "schemas": ["{"]}',
        '{"grammar": "start: schema0", "schemas": ["5"]}',
        '{"grammar": "start: schema1", "schemas": ["{}"]}',
        '{"grammar": "{\\"grammars\\": []}", "schemas": ["{}"]}',
        '{"grammar": "start: schema0", "schemas": ["' + "[" * 100_000 + '"]}',
    ],
)
def test_a_text_that_no_grammar_makes_is_refused(text: str) -> None:
    with pytest.raises(GrammarError, match="cannot be read"):
        of_text(text)
