"""docs/models.md, from the table of architectures:

python -m pagemill.cli.model_reference > docs/models.md
"""

import sys
from typing import Any

from pagemill.cli.models import architectures, counts

_HEAD = """\
# Models

Made from the table of architectures by `python -m pagemill.cli.model_reference`; a test compares.
`pagemill models` prints it.

A model is a folder with a `config.json` and safetensors files, a `.gguf` file, or a hub id. The
first of the configuration's `architectures` chooses the row, or its `model_type` if it names none.
GGUF files of the architectures in the
last column are read, too. A row also stands for the same model with the head of a classifier
(`...ForSequenceClassification`, `...ForTokenClassification`) or without any (`...Model`). All embed
and classify as `--task` and their files say ([tasks](http.md#models-that-pool)). Each row runs on
the native executor and on torch, and has a test that compares it with `transformers`;
[how to add one](add_a_model.md). Images are for [offline use](images.md).

| architecture | models | `model_type` | task | GGUF |
|---|---|---|---|---|
"""


def reference() -> str:
    """Returns the whole document."""
    rows = architectures()
    return "".join([_HEAD, *map(_row, rows), f"\n{counts(rows)}.\n"])


def _row(row: dict[str, Any]) -> str:
    types, gguf = (", ".join(f"`{name}`" for name in row[key]) for key in ("model_types", "gguf"))
    return f"| `{row['architecture']}` | {row['title']} | {types} | {row['task']} | {gguf} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
