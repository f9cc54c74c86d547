"""`pagemill batch`: OpenAI's batch files, without a server."""

import sys
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import dataclass

from pagemill.config import ConfigError, EngineConfig, Range, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """Batch: which requests, and where their answers go."""

    output: str = option("-", "File for the answers; - is standard output.", short="o")
    concurrency: int = option(256, "Requests that are worked on at once.", allowed=Range(1, 65536))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    result = FlagParser(
        "pagemill batch",
        "Answers an OpenAI batch file in this process: a request on each line, with custom_id,"
        " method, url (such as /v1/chat/completions or /v1/embeddings) and body. Answers"
        " are written as they come; a request that fails has its error in its answer, and the exit"
        " status is 1.",
        "pagemill batch requests.jsonl --output answers.jsonl\n"
        "pagemill batch requests.jsonl -o answers.jsonl --model model.gguf --max-model-len 4K",
    )
    result.add_argument("input", metavar="INPUT", help="JSON lines; - is standard input")
    for part in (BatchConfig, EngineConfig):
        result.add_config(part)
    return result


def run(parser: FlagParser, args: Namespace) -> int:
    """Loads the model and answers the file."""
    parts = (BatchConfig, EngineConfig)
    config = parser.read(BatchConfig, args, parts)
    engine = parser.read(EngineConfig, args, parts)
    from pagemill.server.batch_run import run as run_batch

    with ExitStack() as stack:
        is_stdin, is_stdout = args.input == "-", config.output == "-"
        source = sys.stdin.buffer if is_stdin else stack.enter_context(open(args.input, "rb"))
        if not (is_stdin or is_stdout) and _same(args.input, config.output):
            raise ConfigError("--output is the input file")
        output = sys.stdout.buffer if is_stdout else stack.enter_context(open(config.output, "wb"))
        return 1 if run_batch(engine, source, output, config.concurrency) else 0


def _same(first: str, second: str) -> bool:
    from pathlib import Path

    return Path(second).exists() and Path(first).samefile(second)
