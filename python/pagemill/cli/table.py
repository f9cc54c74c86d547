"""Every command: its name, the module that holds it, and what it is for.

A command's module has `parser() -> FlagParser` and `run(parser, args) -> int`. It is imported when
the command is given and at no other time, and imports what it needs when it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `pagemill --help` needs none of it
    from pagemill.config.flags import FlagParser


@dataclass(frozen=True, slots=True)
class Command:
    """One row; `words` is how it is called, such as ("bench", "latency")."""

    words: tuple[str, ...]
    module: str
    summary: str

    @property
    def parser(self) -> Callable[[], FlagParser]:
        """Makes the command's parser; imports its module."""
        return importlib.import_module(self.module).parser

    @property
    def run(self) -> Callable[[FlagParser, Any], int]:
        """Runs the command on what its parser made of the arguments."""
        return importlib.import_module(self.module).run


COMMANDS = (
    Command(("serve",), "pagemill.cli.serve", "serve a model over HTTP, as OpenAI's API"),
    Command(
        ("serve-models",),
        "pagemill.cli.serve_models",
        "serve several models, each loaded when it is named",
    ),
    Command(("route",), "pagemill.cli.route", "pass requests on to several servers"),
    Command(("generate",), "pagemill.cli.generate", "generate text from prompts, offline"),
    Command(("batch",), "pagemill.cli.batch", "answer an OpenAI batch file, offline"),
    Command(("chat",), "pagemill.cli.chat", "talk to a model, here or on a server"),
    Command(("complete",), "pagemill.cli.complete", "continue text, here or on a server"),
    Command(("bench", "latency"), "pagemill.cli.bench_latency", "time one batch from start to end"),
    Command(
        ("bench", "throughput"),
        "pagemill.cli.bench_throughput",
        "tokens per second over many requests, offline",
    ),
    Command(("bench", "serve"), "pagemill.cli.bench_serve", "put load on a server and time it"),
    Command(
        ("bench", "sweep"),
        "pagemill.cli.bench_sweep",
        "measure combinations of server options and loads",
    ),
    Command(
        ("bench", "startup"),
        "pagemill.cli.bench_startup",
        "time a server's start, cold and warm",
    ),
    Command(
        ("bench", "limits"), "pagemill.cli.bench_limits", "what this machine reads and multiplies"
    ),
    Command(("top",), "pagemill.cli.top", "show what running servers do"),
    Command(("plan",), "pagemill.cli.plan", "what memory a model takes and what fits, unloaded"),
    Command(("models",), "pagemill.cli.models", "which architectures of models run"),
    Command(("simulate",), "pagemill.cli.simulate", "what a load would need, in virtual time"),
    Command(("export",), "pagemill.cli.export", "what a host program without Python loads"),
    Command(
        ("detect-watermark",),
        "pagemill.cli.detect_watermark",
        "whether a text bears the mark of a key",
    ),
    Command(("doctor",), "pagemill.cli.doctor", "what this machine can do and what is missing"),
)


_OTHERS = {
    "collect-env": "use doctor",
    "pull": "a model is fetched when serve or chat first names it",
    "run": "use chat, or serve",
    "run-batch": "use batch",
}
"""Commands of vLLM and Ollama, and what does the same here."""


def find(argv: list[str]) -> Command | None:
    """Returns the command that `argv` begins with."""
    for command in COMMANDS:
        if tuple(argv[: len(command.words)]) == command.words:
            return command
    return None


def not_found(argv: list[str]) -> str:
    """Returns a sentence about arguments that begin with no command, naming those there are."""
    from pagemill.config.fields import did_you_mean

    first = argv[0]
    seconds = [command.words[1] for command in COMMANDS if command.words[0] == first]
    if seconds:
        said = f"unknown: {' '.join(argv[:2])}; " if len(argv) > 1 else ""
        return f"{said}`pagemill {first}` is followed by {', '.join(seconds)}"
    if first.startswith("-") or "/" in first or first.endswith(".gguf"):
        return f"a command comes first, such as `pagemill serve {first}`"
    names = sorted({command.words[0] for command in COMMANDS})
    hint = f"; {_OTHERS[first]}" if first in _OTHERS else did_you_mean(first, names)
    return f"unknown command {first!r}{hint}; known: {', '.join(names)}"
