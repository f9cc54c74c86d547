"""What the processes of a check say: a line of JSON for each result, on standard output.

    say(what="decode", batch=64, tokens_per_s=8700.0)

Everything else that they print is for people. A process that has nothing to check, because the
device refuses the model, exits with REFUSED.
"""

from __future__ import annotations

import json
from typing import Any

REFUSED = 3
_MARK = "RESULT "


def say(**fields: Any) -> None:
    """Print a result at once, so that it outlives the process."""
    print(_MARK + json.dumps(fields), flush=True)


def read(line: str) -> dict[str, Any] | None:
    """The result on a line; None if it has none."""
    return json.loads(line[len(_MARK) :]) if line.startswith(_MARK) else None
