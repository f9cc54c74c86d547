"""`pagemill chat`: a conversation in the terminal."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pagemill.cli.text_source import ClientConfig, Message, RemoteText, TextSource
from pagemill.config import ConfigError, EngineConfig, SamplingConfig, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser

_HELP = """\
/reset  forget the conversation   /system TEXT  set the instruction   /quit or Ctrl-D  leave
"""


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """Chat: what is said."""

    quick: str | None = option(
        None, "Say this, print the answer and leave; - reads it from standard input.", short="q"
    )
    system_prompt: str | None = option(None, "Instruction that stands before the conversation.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill chat",
        "Talks to a model: one loaded into this process, or a server's with --url.",
        'pagemill chat\npagemill chat -q "Why is the sky blue?" --temperature 0\n'
        "pagemill chat --url http://localhost:8000",
    )
    for part in (ChatConfig, SamplingConfig, ClientConfig, EngineConfig):
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Holds the conversation."""
    parts = (ChatConfig, SamplingConfig, ClientConfig, EngineConfig)
    chat = parser.read(ChatConfig, args, parts)
    sampling = parser.read(SamplingConfig, args, parts)
    client = parser.read(ClientConfig, args, parts)
    source = open_source(client, parser.read(EngineConfig, args, parts), chat.quick)
    try:
        system: list[Message] = []
        if chat.system_prompt is not None:
            system.append({"role": "system", "content": chat.system_prompt})
        if chat.quick is not None:
            said = sys.stdin.read() if chat.quick == "-" else chat.quick
            messages = [*system, {"role": "user", "content": said}]
            write_stream(source.chat(messages, sampling), sys.stdout)
            return 0
        return _converse(source, sampling, system)
    finally:
        source.close()


def open_source(client: ClientConfig, engine: EngineConfig, quick: str | None) -> TextSource:
    """Returns the server's text if --url is given, else that of a model loaded here.

    Raises:
      ConfigError: there is no -q (`quick`), but something else than a model in the model's place.
    """
    if quick is None and engine.model.model is not None:
        _check_is_no_text(engine.model.model)
    if client.url is not None:
        return RemoteText.connect(client)
    from pagemill.cli.local_text import LocalText

    return LocalText.load(engine)


def _check_is_no_text(model: str) -> None:
    from pagemill.weights.fetch_hub import parse_hub_id

    known = Path(model).expanduser().exists() or parse_hub_id(model, None) is not None
    if not known and "://" not in model:
        raise ConfigError(
            f"{model!r} is no file, folder, hub id (owner/name) or URL. Text goes to -q:"
            f" -q {shlex.quote(model)}"
        )


def write_stream(pieces: Iterator[str], out: TextIO) -> str:
    """Writes pieces as they come, then a newline; returns the whole."""
    text: list[str] = []
    for piece in pieces:
        text.append(piece)
        out.write(piece)
        out.flush()
    out.write("\n")
    out.flush()
    return "".join(text)


def _converse(source: TextSource, sampling: SamplingConfig, system: list[Message]) -> int:
    print(_HELP, end="", file=sys.stderr)
    messages = list(system)
    while True:
        try:
            said = input("> ").strip()
        except EOFError:
            print(file=sys.stderr)
            return 0
        if said == "/quit":
            return 0
        if said == "/reset":
            messages = list(system)
        elif said.startswith("/system "):
            system = [{"role": "system", "content": said.removeprefix("/system ")}]
            messages = list(system)
        elif said.startswith("/"):
            print(_HELP, end="", file=sys.stderr)
        elif said:
            _turn(source, sampling, messages, said)


def _turn(source: TextSource, sampling: SamplingConfig, messages: list[Message], said: str) -> None:
    from pagemill.engine.outputs import EngineError

    messages.append({"role": "user", "content": said})
    try:
        answer = write_stream(source.chat(messages, sampling), sys.stdout)
    except KeyboardInterrupt:  # the answer was long enough; the conversation continues without it
        print(file=sys.stderr)
        messages.pop()
    except (ValueError, EngineError) as error:
        # Such as a conversation that outgrew the context; it continues without this turn.
        print(f"{error}", file=sys.stderr)
        messages.pop()
    else:
        messages.append({"role": "assistant", "content": answer})
