"""Plugins of token matchers: opened once, factories are kept, and what fails names the plugin."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from pagemill.engine import token_matcher_plugins
from pagemill.engine.outputs import EngineError
from pagemill.engine.token_matcher import TokenMatcherFactory
from pagemill.engine.token_matcher_plugins import (
    GROUP,
    MAX_ARGUMENTS_CHARS,
    MAX_NAMED,
    NamedMatcher,
    TokenMatcherPlugins,
    failure_text,
    named_matchers,
)
from pagemill.structured.grammar import GrammarError
from pagemill.structured.vocabulary import Vocabulary


class Anything:
    def fill_mask(self, mask: np.ndarray) -> None:
        mask.fill(0xFFFFFFFF)

    def accept(self, token_id: int) -> bool:
        if token_id < 0:
            raise KeyError(f"token\n{token_id}")
        return True

    def rollback(self, num_tokens: int) -> None: ...

    def forced(self, most: int) -> list[int]:
        return [7][:most]


class Plugin:
    made: list[Any] = []

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.made.append(vocabulary)

    def factory(self, arguments: Any) -> TokenMatcherFactory:
        if arguments == "refuse":
            raise ValueError("it must be a number")
        if arguments == "fail":
            raise KeyError("oops")
        self.made.append(arguments)
        return Anything


@pytest.fixture(name="plugins")
def _plugins(monkeypatch: pytest.MonkeyPatch) -> TokenMatcherPlugins:
    found = [
        EntryPoint("any", f"{__name__}:Plugin", GROUP),
        EntryPoint("gone", "no_such_module:Plugin", GROUP),
    ]
    monkeypatch.setattr(token_matcher_plugins, "entries", lambda group: found)
    monkeypatch.setattr(token_matcher_plugins, "loaded", _loaded)
    Plugin.made = []
    return TokenMatcherPlugins()


def _loaded(entry: EntryPoint) -> Any:
    return Plugin if entry.name == "any" else entry.load()


def vocabulary() -> Any:
    return "the vocabulary"


def test_plugins_are_opened_once_and_factories_are_kept(plugins: TokenMatcherPlugins) -> None:
    (named,) = named_matchers({"any": {"most": 3, "of": ["ü"]}})
    assert named.arguments.isascii()
    first = plugins.factory(named, vocabulary)
    assert plugins.factory(named, vocabulary) is first
    plugins.factory(NamedMatcher("any", "4"), vocabulary)
    assert Plugin.made == ["the vocabulary", {"most": 3, "of": ["ü"]}, 4]
    matcher = first()
    assert matcher is not first() and matcher.accept(1) and list(matcher.forced(3)) == [7]
    for number in range(100):  # more than are kept
        plugins.factory(NamedMatcher("any", str(number)), vocabulary)
    assert plugins.factory(named, vocabulary) is not first


@pytest.mark.parametrize(
    ("name", "arguments", "code", "sentence"),
    [
        ("other", "1", "INVALID_ARGUMENT", r"'other' \(pagemill.token_matchers\).*: any, gone\.$"),
        ("any", '"refuse"', "INVALID_ARGUMENT", "'any' refuses its arguments: it must be a number"),
        ("any", '"fail"', "INTERNAL", "'any' failed: KeyError: 'oops'$"),
        ("gone", "1", "INTERNAL", "'gone' failed: .*no_such_module"),
    ],
)
def test_failures_name_the_plugin(
    plugins: TokenMatcherPlugins, name: str, arguments: str, code: str, sentence: str
) -> None:
    with pytest.raises(EngineError, match=sentence) as error:
        plugins.factory(NamedMatcher(name, arguments), vocabulary)
    assert error.value.code == code
    plugins.factory(NamedMatcher("any", "1"), vocabulary)


def test_without_a_tokenizer(plugins: TokenMatcherPlugins) -> None:
    def none() -> Vocabulary:
        raise GrammarError("no tokenizer is loaded")

    with pytest.raises(EngineError, match="'any' cannot be used: no tokenizer") as error:
        plugins.factory(NamedMatcher("any", "1"), none)
    assert error.value.code == "INVALID_ARGUMENT"


def test_a_matcher_that_raises(plugins: TokenMatcherPlugins) -> None:
    matcher = plugins.factory(NamedMatcher("any", "1"), vocabulary)()
    with pytest.raises(RuntimeError) as error:
        matcher.accept(-1)
    message = "The token matcher 'any' failed: KeyError: 'token\\n-1'"
    assert str(error.value) == message
    traceback = (
        f'failed: Traceback (most recent call last):\n  File "x.py"\nRuntimeError: {message}'
    )
    assert failure_text(traceback) == message
    assert failure_text("The request failed.") == "The request failed."


def test_what_a_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_matchers({}) == ()
    assert named_matchers({"a": None}) == (NamedMatcher("a", "null"),)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({1}, float("nan"), deep):
        with pytest.raises(EngineError, match="'a' are not JSON"):
            named_matchers({"a": value})
    half = "x" * (MAX_ARGUMENTS_CHARS // 2)
    for large in ({"a": half, "b": half}, {"a": half + half}, {half + half: 1}):
        with pytest.raises(EngineError, match=f"at most {MAX_ARGUMENTS_CHARS}"):
            named_matchers(large)
    monkeypatch.setattr(json, "dumps", None)  # which takes seconds for some MB
    with pytest.raises(EngineError, match=f"at most {MAX_ARGUMENTS_CHARS}"):
        named_matchers({"a": [1] * MAX_ARGUMENTS_CHARS})
    with pytest.raises(EngineError, match=f"at most {MAX_NAMED} token matchers"):
        named_matchers(dict.fromkeys(map(str, range(MAX_NAMED + 1))))
