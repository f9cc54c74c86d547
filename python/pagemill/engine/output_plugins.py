"""Token matchers and logits processors of installed packages, which requests choose by name
(docs/plugins.md).

    class Digits:
        def __init__(self, vocabulary: Vocabulary) -> None: ...
        def factory(self, arguments: Any) -> TokenMatcherFactory: ...

    class Liked:
        def __init__(self, vocabulary: Vocabulary) -> None: ...
        def processor(self, arguments: Any) -> LogitsProcessor: ...

    [project.entry-points."pagemill.token_matchers"]
    digits = "my_package:Digits"

    [project.entry-points."pagemill.logits_processors"]
    liked = "my_package:Liked"

    llm.generate("The answer is", extra_args={"digits": {"most": 3}, "liked": ["42"]})

A request carries names and arguments as JSON; the process of the engine makes the functions.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any, Protocol

import msgspec
import numpy as np

from pagemill.config.plugins import entries, loaded
from pagemill.engine.logits_processor import LogitsProcessor
from pagemill.engine.output_functions import OutputFunctions
from pagemill.engine.outputs import EngineError
from pagemill.engine.token_matcher import TokenMatcher, TokenMatcherFactory
from pagemill.structured.grammar import GrammarError
from pagemill.structured.vocabulary import Vocabulary

MATCHERS = "pagemill.token_matchers"
PROCESSORS = "pagemill.logits_processors"
"""Groups of entry points."""
MAX_NAMED = 8
MAX_ARGUMENTS_CHARS = 2**16
"""Of a request: names, and arguments as JSON."""
_PARAM = "vllm_xargs"
_MAX_KEPT = 64
_MAX_FAILURE_CHARS = 500
_FAILURE = re.compile(r"The plugin '[^\n]*' failed: [^\n]*\Z")
_LOGGER = logging.getLogger("pagemill.engine")


class TokenMatcherPlugin(Protocol):
    """1. Methods are called in threads, several at once. They have the rights of the server.
    2. A ValueError refuses the request, and the client reads its message. Any other exception is
       an internal error.
    3. What is made of a request's arguments is bounded by the plugin, in time and memory.
    """

    def factory(self, arguments: Any) -> TokenMatcherFactory:
        """What makes the matchers of requests with these `arguments`, a JSON value. It may be kept
        for later requests with the same ones."""
        ...


class LogitsProcessorPlugin(Protocol):
    """Keeps the obligations of a `TokenMatcherPlugin`."""

    def processor(self, arguments: Any) -> LogitsProcessor:
        """What changes the logits of requests with these `arguments`, likewise."""
        ...


OpenPlugin = Callable[[Vocabulary], TokenMatcherPlugin | LogitsProcessorPlugin]
"""An entry point: called once in each process with an engine, when a request first names it."""


class NamedPlugin(msgspec.Struct, array_like=True, frozen=True):
    """A plugin, as a request names it. `arguments` is JSON."""

    name: str
    arguments: str


def named_plugins(extra_args: Mapping[str, Any]) -> tuple[NamedPlugin, ...]:
    """Those that the keys of a request's `extra_args` name; the values are their arguments.

    Raises:
        EngineError: INVALID_ARGUMENT: there are too many, or a value is no JSON or too large.
    """
    if len(extra_args) > MAX_NAMED:
        raise _refused(f"a request names at most {MAX_NAMED} plugins, not {len(extra_args)}.")
    named = tuple(NamedPlugin(name, _as_json(name, each)) for name, each in extra_args.items())
    size = sum(len(each.name) + len(each.arguments) for each in named)
    if size > MAX_ARGUMENTS_CHARS:
        raise _too_large(size)
    return named


def failure_text(message: str) -> str:
    """What a client reads of a request that failed with `message`: Python's traceback from within a
    plugin is for the log."""
    found = _FAILURE.search(message)
    return message if found is None else found[0]


class OutputPlugins:
    """Opens the plugins that requests name, and keeps the functions of the latest. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of the functions that are kept
        self._opening = threading.Lock()  # of the rest: held as long as a plugin takes to open
        self._entries: dict[str, EntryPoint] | None = None
        self._opened: dict[str, _Opened] = {}
        self._kept: OrderedDict[NamedPlugin, OutputFunctions] = OrderedDict()

    def functions(
        self, named: NamedPlugin, open_vocabulary: Callable[[], Vocabulary]
    ) -> OutputFunctions:
        """What a plugin has to do with outputs. May take as long as the plugin: call it in a thread
        first.

        Raises:
            EngineError: no package has the plugin, it refuses the arguments, or it failed.
        """
        with self._lock:
            kept = self._kept.get(named)
            if kept is not None:
                self._kept.move_to_end(named)
                return kept
        opened = self._opened.get(named.name) or self._open(named.name, open_vocabulary)
        try:
            functions = opened(json.loads(named.arguments))
        except ValueError as error:
            message = f"the plugin {_quoted(named.name)} refuses its arguments: {_line(error)}"
            raise _refused(message) from error
        except Exception as error:  # a plugin may raise anything
            raise _failed(named.name, error) from error
        with self._lock:
            self._kept[named] = functions
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return functions

    def _open(self, name: str, open_vocabulary: Callable[[], Vocabulary]) -> _Opened:
        with self._opening:
            if name in self._opened:
                return self._opened[name]
            if self._entries is None:
                self._entries = _all_entries()
            if name not in self._entries:
                known = ", ".join(self._entries) or "none"
                raise _refused(
                    f"no installed package has the plugin {_quoted(name)} ({MATCHERS},"
                    f" {PROCESSORS}); there are: {known}."
                )
            entry = self._entries[name]
            try:
                open_plugin: OpenPlugin = loaded(entry)
                self._opened[name] = _makes(entry, open_plugin(open_vocabulary()))
            except GrammarError as error:
                message = f"the plugin {_quoted(name)} cannot be used: {error}."
                raise _refused(message) from error
            except Exception as error:  # a plugin may raise anything
                raise _failed(name, error) from error
            return self._opened[name]


_Opened = Callable[[Any], OutputFunctions]


def _all_entries() -> dict[str, EntryPoint]:
    """Those of both groups.

    Raises:
        EngineError: INTERNAL: both have one of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in (*entries(MATCHERS), *entries(PROCESSORS)):
        other = found.setdefault(entry.name, entry)
        if other.group != entry.group:
            raise EngineError(
                "INTERNAL",
                f"Installed packages have {_quoted(entry.name)} in {MATCHERS} and in {PROCESSORS}:"
                " a request could mean either. Remove one of them.",
            )
    return found


def _makes(entry: EntryPoint, plugin: Any) -> _Opened:
    """What makes the functions of `plugin`, which `entry` is, for the arguments of a request."""
    name = entry.name
    if entry.group == MATCHERS:
        factory = plugin.factory
        return lambda arguments: OutputFunctions(_NamedFactory(name, factory(arguments)))
    processor = plugin.processor
    return lambda arguments: OutputFunctions(
        logits_processor=_NamedProcessor(name, processor(arguments))
    )


class _NamedFactory:
    """Makes the matchers of a plugin's factory; their failures name the plugin."""

    def __init__(self, name: str, make: TokenMatcherFactory) -> None:
        self._name = name
        self._make = make

    def __call__(self) -> TokenMatcher:
        """See `TokenMatcherFactory`."""
        with _failures_of(self._name):
            return _NamedMatcher(self._name, self._make())


class _NamedMatcher:
    """The state of one output, of a plugin. Implements `TokenMatcher`."""

    def __init__(self, name: str, matcher: TokenMatcher) -> None:
        self._name = name
        self._matcher = matcher

    def fill_mask(self, mask: np.ndarray) -> None:
        """See `TokenMatcher`."""
        with _failures_of(self._name):
            self._matcher.fill_mask(mask)

    def accept(self, token_id: int) -> bool:
        """See `TokenMatcher`."""
        with _failures_of(self._name):
            return self._matcher.accept(token_id)

    def rollback(self, num_tokens: int) -> None:
        """See `TokenMatcher`."""
        with _failures_of(self._name):
            self._matcher.rollback(num_tokens)

    def forced(self, most: int) -> Sequence[int]:
        """See `TokenMatcher`."""
        with _failures_of(self._name):
            return self._matcher.forced(most)


class _NamedProcessor:
    """A plugin's logits processor; its failures name the plugin."""

    def __init__(self, name: str, process: LogitsProcessor) -> None:
        self._name = name
        self._process = process

    def __call__(
        self, prompt_token_ids: np.ndarray, output_token_ids: np.ndarray, logits: np.ndarray
    ) -> None:
        """See `LogitsProcessor`."""
        with _failures_of(self._name):
            self._process(prompt_token_ids, output_token_ids, logits)


@contextlib.contextmanager
def _failures_of(name: str) -> Generator[None]:
    """An exception in here names the plugin, in one line; the log has it whole."""
    try:
        yield
    except Exception as error:  # a plugin may raise anything
        raise RuntimeError(_failed(name, error).message) from error


def _failed(name: str, error: Exception) -> EngineError:
    _LOGGER.error("the plugin %r failed", name, exc_info=error)
    what = f"{type(error).__name__}: {_line(error)}"
    return EngineError("INTERNAL", f"The plugin {_quoted(name)} failed: {what}")


def _line(error: Exception) -> str:
    """What a plugin raised, in one line of bounded length."""
    return " ".join(str(error).split())[:_MAX_FAILURE_CHARS]


def _as_json(name: str, arguments: Any) -> str:
    try:
        size = len(name) + len(msgspec.json.encode(arguments))
        if size <= MAX_ARGUMENTS_CHARS:  # `json` takes seconds for all that a body may have
            return json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refused(f"the arguments of {_quoted(name)} are not JSON: {error}") from error
    raise _too_large(size)


def _too_large(size: int) -> EngineError:
    return _refused(
        f"names and arguments of plugins have {size} characters as JSON; at most"
        f" {MAX_ARGUMENTS_CHARS} are taken."
    )


def _refused(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", f"`{_PARAM}`: {message}", _PARAM)


def _quoted(name: str) -> str:
    return repr(name[:100])
