"""Reads a Containerfile."""

from __future__ import annotations

import re
from typing import NamedTuple


class Instruction(NamedTuple):
    """A line, with those that continue it: `USER pagemill`."""

    name: str
    value: str


def instructions(text: str) -> list[Instruction]:
    """Returns the instructions of a file without comments within instructions."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [Instruction(name, value.strip()) for name, _, value in found]
