"""`pagemill export`: what a host program without Python loads (`cc/examples/embed_engine`)."""

import itertools
import json
import os
import re
import shutil
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagemill.config import ConfigError, ModelConfig, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser
from pagemill.engine.model_plan import model_path

if TYPE_CHECKING:
    from pagemill.render.renderer import Renderer

PROGRAM = "model.program"
VOCABULARY = "model.vocabulary"


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """Output: where the files go."""

    output: str = option(
        "exported", f"Folder to write {PROGRAM} and {VOCABULARY} to; made if need be.", short="o"
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill export",
        f"Writes {PROGRAM}, the traced and rewritten program of a model (docs/program_format.md),"
        f" and {VOCABULARY}, the bytes and merges of a byte-level or SentencePiece vocabulary, for"
        " hosts that link the engine and have no Python. The weight files come into the folder too,"
        " as hard links, or as copies if it is on another file system; the program names them"
        " relative to itself, so the folder can be moved.",
        "pagemill export --output smollm2\npagemill export model.gguf -o folder",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    for part in (ExportConfig, ModelConfig):
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Writes both files."""
    from pagemill.engine.loading import build_options
    from pagemill.render.renderer import Renderer
    from pagemill.runner.build import build
    from pagemill.weights.source import ModelSource

    parts = (ExportConfig, ModelConfig)
    folder = Path(parser.read(ExportConfig, args, parts).output)
    config = parser.read(ModelConfig, args, parts)
    source = ModelSource.open(model_path(config).absolute(), config.hf_overrides)
    # The programs of host programs in C++, which have no Python to fall back to.
    built = build(source, replace(build_options(config), implementation="native"))
    vocabulary = vocabulary_text(Renderer.open(source), built.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    text = with_weights(built.program_text, folder)
    (folder / PROGRAM).write_text(text, encoding="utf-8")
    (folder / VOCABULARY).write_text(vocabulary, encoding="ascii")
    written = {"program": str(folder / PROGRAM), "vocabulary": str(folder / VOCABULARY)}
    print(json.dumps(written) if args.json else "\n".join(written.values()))
    return 0


def with_weights(text: str, folder: Path) -> str:
    """Returns the program with weight files of `folder`, to which it links or copies them."""
    names = {PROGRAM, VOCABULARY}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = re.fullmatch(r"file (\d+) (/.+)", line)
        if match is None:
            continue
        source = Path(match[2])
        name = f"{match[1]}-{source.name}" if source.name in names else source.name
        names.add(name)
        _place(source.resolve(), folder / name)
        lines[number] = f"file {match[1]} {name}"
    return "\n".join(lines)


def _place(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    try:
        os.link(source, unfinished)
    except OSError:  # another file system, or one without links
        try:
            shutil.copyfile(source, unfinished)
        except OSError as error:  # it may name the source
            unfinished.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(target)) from error
    unfinished.replace(target)


def vocabulary_text(renderer: "Renderer", size: int) -> str:
    """The vocabulary of `size` tokens as `cc/examples/embed_engine/bpe.h` describes it.

    Raises:
      ConfigError: it is neither byte-level nor SentencePiece BPE.
    """
    tokens = [renderer.token_bytes(token) for token in range(size)]
    ranks = renderer.merge_ranks()
    fallback = _byte_tokens(tokens)
    singles = {token for token, data in enumerate(tokens) if token not in ranks and len(data) == 1}
    # A byte above 127 is no character: only byte-level vocabularies have one for a token.
    if not fallback and all(tokens[token] < b"\x80" for token in singles):
        raise ConfigError(
            "the vocabulary is neither byte-level nor SentencePiece BPE with bytes: a host of this"
            " model needs a tokenizer of its own"
        )
    plain = renderer.encode("a", add_special_tokens=False)
    before = list(itertools.takewhile(lambda token: token != plain[0], renderer.encode("a")))
    prefix = "20" if tokens[plain[0]].startswith(b" ") else "-"
    lines = [f"{'text' if fallback else 'words'} {prefix} {','.join(map(str, before)) or '-'}"]
    for token, data in enumerate(tokens):
        rank = ranks.get(token, _FROM_NO_TEXT)
        if token in fallback:
            rank = _BYTE
        elif token not in ranks and (_is_character(data) if fallback else token in singles):
            rank = _START
        lines.append(f"{data.hex() or '-'} {rank}")
    return "\n".join(lines) + "\n"


_START, _BYTE, _FROM_NO_TEXT = -1, -2, -3


def _byte_tokens(tokens: list[bytes]) -> range:
    """SentencePiece's 256 tokens of a byte each, in order; empty in other vocabularies."""
    every = [bytes([byte]) for byte in range(256)]
    starts = (at for at, data in enumerate(tokens) if data == every[0])
    return next((range(at, at + 256) for at in starts if tokens[at : at + 256] == every), range(0))


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False
