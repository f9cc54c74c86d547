"""`pagemill models`: the architectures that this program runs."""

import json
from argparse import Namespace
from typing import Any

from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill models",
        "Prints the architectures of models that this program runs: the name in a config.json, what"
        " such models are called and are for, and the architectures of GGUF files with them.",
        "pagemill models\npagemill models --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Prints the table."""
    del parser
    rows = architectures()
    print(json.dumps(rows, indent=2) if args.json else _table(rows))
    return 0


def architectures() -> list[dict[str, Any]]:
    """The rows, each with `architecture`, `title`, `task` and `gguf`, in the table's order."""
    from pagemill.models.table import ARCHITECTURES
    from pagemill.weights.gguf_families import GGUF_FAMILIES

    return [
        {
            "architecture": name,
            "title": row.title,
            "task": row.task,
            "gguf": [gguf for gguf, row in GGUF_FAMILIES.items() if name in row.architectures],
        }
        for name, row in ARCHITECTURES.items()
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    heads = {"architecture": "architecture", "title": "models", "task": "task", "gguf": "GGUF"}
    cells = [heads, *({**row, "gguf": ", ".join(row["gguf"])} for row in rows)]
    widths = {key: max(len(line[key]) for line in cells) for key in heads}
    lines = ("  ".join(line[key].ljust(widths[key]) for key in heads).rstrip() for line in cells)
    return "\n".join([*lines, "", f"{len(rows)} architectures"])
