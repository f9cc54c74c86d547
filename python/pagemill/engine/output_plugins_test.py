"""Plugins that requests name: opened once, functions are kept, and what fails names the plugin."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from pagemill.engine import output_plugins
from pagemill.engine.logits_processor import LogitsProcessor
from pagemill.engine.output_functions import OutputFunctions, joined
from pagemill.engine.output_plugins import (
    MATCHERS,
    MAX_ARGUMENTS_CHARS,
    MAX_NAMED,
    PROCESSORS,
    NamedPlugin,
    OutputPlugins,
    failure_text,
    named_plugins,
)
from pagemill.engine.outputs import EngineError
from pagemill.engine.token_matcher import TokenMatcherFactory
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


class Liked:
    """Adds 2 to the logits of some tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None: ...

    def processor(self, arguments: Any) -> LogitsProcessor:
        if not isinstance(arguments, list):
            raise ValueError("it must be a list of tokens")

        def process(prompt: np.ndarray, outputs: np.ndarray, logits: np.ndarray) -> None:
            logits[arguments] += 2

        return process


@pytest.fixture(name="plugins")
def _plugins(monkeypatch: pytest.MonkeyPatch) -> OutputPlugins:
    found = {
        MATCHERS: [
            EntryPoint("any", f"{__name__}:Plugin", MATCHERS),
            EntryPoint("gone", "no_such_module:Plugin", MATCHERS),
        ],
        PROCESSORS: [EntryPoint("liked", f"{__name__}:Liked", PROCESSORS)],
    }
    monkeypatch.setattr(output_plugins, "entries", found.__getitem__)
    monkeypatch.setattr(output_plugins, "loaded", _loaded)
    Plugin.made = []
    return OutputPlugins()


def _loaded(entry: EntryPoint) -> Any:
    return {"any": Plugin, "liked": Liked}.get(entry.name) or entry.load()


def vocabulary() -> Any:
    return "the vocabulary"


def test_plugins_are_opened_once_and_functions_are_kept(plugins: OutputPlugins) -> None:
    (named,) = named_plugins({"any": {"most": 3, "of": ["ü"]}})
    assert named.arguments.isascii()
    first = plugins.functions(named, vocabulary)
    assert plugins.functions(named, vocabulary) is first
    plugins.functions(NamedPlugin("any", "4"), vocabulary)
    assert Plugin.made == ["the vocabulary", {"most": 3, "of": ["ü"]}, 4]
    make = first.token_matcher
    assert make is not None and first.logits_processor is None
    matcher = make()
    assert matcher is not make() and matcher.accept(1) and list(matcher.forced(3)) == [7]
    for number in range(100):  # more than are kept
        plugins.functions(NamedPlugin("any", str(number)), vocabulary)
    assert plugins.functions(named, vocabulary) is not first


@pytest.mark.parametrize(
    ("name", "arguments", "code", "sentence"),
    [
        (
            "other",
            "1",
            "INVALID_ARGUMENT",
            r"'other' \(pagemill.*: any, gone, liked\.$",
        ),
        ("any", '"refuse"', "INVALID_ARGUMENT", "'any' refuses its arguments: it must be a number"),
        ("any", '"fail"', "INTERNAL", "'any' failed: KeyError: 'oops'$"),
        ("gone", "1", "INTERNAL", "'gone' failed: .*no_such_module"),
    ],
)
def test_failures_name_the_plugin(
    plugins: OutputPlugins, name: str, arguments: str, code: str, sentence: str
) -> None:
    with pytest.raises(EngineError, match=sentence) as error:
        plugins.functions(NamedPlugin(name, arguments), vocabulary)
    assert error.value.code == code
    plugins.functions(NamedPlugin("any", "1"), vocabulary)


def test_without_a_tokenizer(plugins: OutputPlugins) -> None:
    def none() -> Vocabulary:
        raise GrammarError("no tokenizer is loaded")

    with pytest.raises(EngineError, match="'any' cannot be used: no tokenizer") as error:
        plugins.functions(NamedPlugin("any", "1"), none)
    assert error.value.code == "INVALID_ARGUMENT"


def test_a_matcher_that_raises(plugins: OutputPlugins) -> None:
    make = plugins.functions(NamedPlugin("any", "1"), vocabulary).token_matcher
    assert make is not None
    matcher = make()
    with pytest.raises(RuntimeError) as error:
        matcher.accept(-1)
    message = "The plugin 'any' failed: KeyError: 'token\\n-1'"
    assert str(error.value) == message
    traceback = (
        f'failed: Traceback (most recent call last):\n  File "x.py"\nRuntimeError: {message}'
    )
    assert failure_text(traceback) == message
    assert failure_text("The request failed.") == "The request failed."


def test_processors(plugins: OutputPlugins) -> None:
    made = plugins.functions(NamedPlugin("liked", "[1, 3]"), vocabulary)
    process = joined([made, OutputFunctions(), made]).logits_processor
    assert made.token_matcher is None and process is not None
    logits, none = np.zeros(4, np.float32), np.zeros(0, np.int32)
    process(none, none, logits)
    assert logits.tolist() == [0, 4, 0, 4]
    with pytest.raises(RuntimeError, match="The plugin 'liked' failed: IndexError"):
        process(none, none, logits[:2])
    with pytest.raises(EngineError, match="'liked' refuses its arguments: it must be a list"):
        plugins.functions(NamedPlugin("liked", "3"), vocabulary)


def test_a_name_in_both_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        output_plugins, "entries", lambda group: [EntryPoint("any", f"{__name__}:Plugin", group)]
    )
    with pytest.raises(EngineError, match="have 'any' in pagemill.token_matchers and in .*Remove"):
        OutputPlugins().functions(NamedPlugin("any", "1"), vocabulary)


def test_what_a_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_plugins({}) == ()
    assert named_plugins({"a": None}) == (NamedPlugin("a", "null"),)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({1}, float("nan"), deep):
        with pytest.raises(EngineError, match="'a' are not JSON"):
            named_plugins({"a": value})
    half = "x" * (MAX_ARGUMENTS_CHARS // 2)
    for large in ({"a": half, "b": half}, {"a": half + half}, {half + half: 1}):
        with pytest.raises(EngineError, match=f"at most {MAX_ARGUMENTS_CHARS}"):
            named_plugins(large)
    monkeypatch.setattr(json, "dumps", None)  # which takes seconds for some MB
    with pytest.raises(EngineError, match=f"at most {MAX_ARGUMENTS_CHARS}"):
        named_plugins({"a": [1] * MAX_ARGUMENTS_CHARS})
    with pytest.raises(EngineError, match=f"at most {MAX_NAMED} plugins"):
        named_plugins(dict.fromkeys(map(str, range(MAX_NAMED + 1))))
