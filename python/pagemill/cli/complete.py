"""`pagemill complete`: continues text."""

import sys
from argparse import Namespace
from dataclasses import dataclass

from pagemill.cli.chat import open_source, write_stream
from pagemill.cli.text_source import ClientConfig
from pagemill.config import EngineConfig, SamplingConfig, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser


@dataclass(frozen=True, slots=True)
class CompleteConfig:
    """Text: what is continued."""

    quick: str | None = option(
        None,
        "Continue this text, print what follows and leave; - reads it from standard input."
        " Without it, each line typed is continued.",
        short="q",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill complete",
        "Continues text with a model loaded into this process, or a server's with --url. The text"
        " is given to the model as it is, without a chat template.",
        'pagemill complete -q "Once upon a time" --max-tokens 40',
    )
    for part in (CompleteConfig, SamplingConfig, ClientConfig, EngineConfig):
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Continues what is given."""
    parts = (CompleteConfig, SamplingConfig, ClientConfig, EngineConfig)
    quick = parser.read(CompleteConfig, args, parts).quick
    sampling = parser.read(SamplingConfig, args, parts)
    client = parser.read(ClientConfig, args, parts)
    source = open_source(client, parser.read(EngineConfig, args, parts), quick)
    try:
        if quick is not None:
            text = sys.stdin.read() if quick == "-" else quick
            write_stream(source.complete(text, sampling), sys.stdout)
            return 0
        while True:
            try:
                text = input("> ")
            except EOFError:
                print(file=sys.stderr)
                return 0
            if text:
                write_stream(source.complete(text, sampling), sys.stdout)
    finally:
        source.close()
