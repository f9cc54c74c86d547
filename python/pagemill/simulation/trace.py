"""Recorded traces: one JSON object a line, in the form of Mooncake's published traces.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

`timestamp` is in milliseconds, and each of `hash_ids` stands for a block of the prompt's tokens:
equal ids are equal tokens. Two additions: `session` (a number or a string) makes requests wait for
the session's last answer, and `hash_ids` may go on behind the prompt: then they are the answer.

Source: R. Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving"
(arXiv:2407.00079), and github.com/kvcache-ai/Mooncake, FAST25-release/traces.
"""

import json
from pathlib import Path
from typing import Any, TypeAlias, cast

from pagemill.config import ConfigError

# (time in ns, session or 0, [(content, tokens)], prompt tokens, output tokens)
TraceRow: TypeAlias = tuple[int, int, list[tuple[int, int]], int, int]

_MOST_TOKENS = 2**31 - 1
_LAST_MS = 2**42  # in nanoseconds still far from 64 bits


def read_trace(path: str, block_size: int) -> list[TraceRow]:
    """Returns the requests of the file in the order of their times.

    Raises:
      ConfigError: a line is not such an object.
      OSError: the file cannot be read.
    """
    rows: list[TraceRow] = []
    sessions: dict[Any, int] = {}
    with Path(path).open() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(_row(json.loads(line), block_size, sessions))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise ConfigError(f"--trace: {path}:{number}: {error!r}") from None
    if not rows:
        raise ConfigError(f"--trace: {path} has no requests")
    rows.sort(key=lambda row: row[0])
    return rows


def _row(values: dict[str, Any], block_size: int, sessions: dict[Any, int]) -> TraceRow:
    length = int(_checked("input_length", values["input_length"], 1, _MOST_TOKENS))
    ids = cast("list[int]", values["hash_ids"])
    if length > len(ids) * block_size:
        raise ValueError(
            f"input_length is {length}, hash_ids stand for {len(ids) * block_size} tokens"
            " (--trace-block-size)"
        )
    session = values.get("session")
    key = 0 if session is None else sessions.setdefault(session, len(sessions) + 1)
    return (
        int(_checked("timestamp", values.get("timestamp", 0), 0, _LAST_MS) * 1_000_000),
        key,
        [(int(hash_id) % 2**64, block_size) for hash_id in ids],
        length,
        max(1, int(_checked("output_length", values["output_length"], 0, _MOST_TOKENS))),
    )


def _checked(name: str, value: float, low: int, high: int) -> float:
    if not low <= value <= high:  # false for what is not a number, too
        raise ValueError(f"{name} is {value}, it must be from {low} to {high}")
    return value
