"""`pagemill export`: what a host program without Python loads (`cc/examples/embed_engine`)."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagemill.cli.model_plan import model_path
from pagemill.config import ModelConfig, option
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser

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
        f" and {VOCABULARY}, the bytes of its tokens, for hosts that link the engine and have no"
        " Python. The program names the model's own files, which stay where they are.",
        "pagemill export --output smollm2\npagemill export model.gguf -o folder",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    for part in (ExportConfig, ModelConfig):
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Writes both files."""
    from pagemill.render.renderer import Renderer
    from pagemill.runner.build import BuildOptions, build
    from pagemill.weights.source import ModelSource

    parts = (ExportConfig, ModelConfig)
    folder = Path(parser.read(ExportConfig, args, parts).output)
    config = parser.read(ModelConfig, args, parts)
    source = ModelSource.open(model_path(config).absolute())
    built = build(source, BuildOptions(max_model_len=config.max_model_len))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROGRAM).write_text(built.program_text, encoding="utf-8")
    renderer = Renderer.open(source)
    (folder / VOCABULARY).write_text(vocabulary_text(renderer), encoding="ascii")
    written = {"program": str(folder / PROGRAM), "vocabulary": str(folder / VOCABULARY)}
    print(json.dumps(written) if args.json else "\n".join(written.values()))
    return 0


def vocabulary_text(renderer: "Renderer") -> str:
    """One line per token in id order: its bytes in hex ("-" for none) and its rank among merges,
    -1 for a token that no merge makes."""
    ranks = renderer.merge_ranks()
    lines = [
        f"{renderer.token_bytes(token).hex() or '-'} {ranks.get(token, -1)}\n"
        for token in range(renderer.vocab_size)
    ]
    return "".join(lines)
