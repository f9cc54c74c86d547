"""`pagemill models`: the architectures that this program runs."""

import json
from argparse import Namespace
from typing import Any

from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill models",
        "Prints the architectures of models that this program runs: their names in a"
        " config.json, what such models are called and are for, whether --tensor-parallel-size"
        " divides them, where they can be cut into stages, and the architectures of GGUF files with"
        " them.",
        "pagemill models\npagemill models --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Prints the table."""
    del parser
    rows = architectures(installed=True)
    print(json.dumps(rows, indent=2) if args.json else _table(rows))
    return 0


def architectures(*, installed: bool = False) -> list[dict[str, Any]]:
    """The rows, each with `architecture`, `title`, `model_types`, `task`, `tensor_parallel`, `cuts`
    and `gguf`, in the table's order; then, if `installed`, those of plugins."""
    from pagemill.models.table import ARCHITECTURES, installed_architectures
    from pagemill.weights.gguf_families import GGUF_FAMILIES

    further = installed_architectures() if installed else {}
    return [
        {
            "architecture": name,
            "title": row.title,
            "model_types": list(row.model_types),
            "task": row.task,
            "tensor_parallel": row.tensor_parallel,
            "cuts": row.cuts,
            "gguf": [gguf for gguf, row in GGUF_FAMILIES.items() if name in row.architectures],
        }
        for name, row in (ARCHITECTURES | further).items()
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    heads = {
        "architecture": "architecture",
        "title": "models",
        "model_types": "model_type",
        "task": "task",
        "tensor_parallel": "ranks",
        "cuts": "cuts",
        "gguf": "GGUF",
    }
    lists = ("model_types", "gguf")
    cells = [heads, *(row | {key: ", ".join(row[key]) for key in lists} for row in rows)]
    widths = {key: max(len(line[key]) for line in cells) for key in heads}
    lines = ("  ".join(line[key].ljust(widths[key]) for key in heads).rstrip() for line in cells)
    return "\n".join([*lines, "", counts(rows)])


def counts(rows: list[dict[str, Any]]) -> str:
    """How many there are, as a line."""
    types = {name for row in rows for name in row["model_types"]}
    return f"{len(rows)} architectures, {len(types)} values of model_type"
