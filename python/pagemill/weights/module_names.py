"""Names of modules that a configuration lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# A match takes steps of the order of (characters of a module's name) ^ (repetitions).
_MAX_PATTERNS, _MAX_PATTERN_CHARS, _MAX_REPETITIONS = 32, 1000, 4
_SUPPORTED = (
    f"at most {_MAX_PATTERNS} patterns, each of at most {_MAX_PATTERN_CHARS} characters and"
    f" {_MAX_REPETITIONS} repetitions, none of them of a group"
)
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_REPETITION = re.compile(r"[*+{]|(?<![(*+}])\?")
_REPEATED_GROUP = re.compile(r"\)[*+{]")


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """Modules that a configuration lists: by name ("lm_head"), by whole components of it
    ("mlp.gate" is part of "model.layers.3.mlp.gate"), or by a pattern that begins with "re:"."""

    entries: tuple[str, ...] = ()

    def __contains__(self, module: str) -> bool:
        dotted = f".{module}."
        for entry in self.entries:
            if entry.startswith("re:"):
                if re.match(entry[3:], module):
                    return True
            elif f".{entry}." in dotted:
                return True
        return False


def unsupported_patterns(entries: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each pattern that is invalid or could take hours to match, and what is supported.

    Patterns come with the model, so they are as trustworthy as it is.
    """
    patterns = [entry for entry in entries if entry.startswith("re:")]
    if len(patterns) > _MAX_PATTERNS:
        yield f"{len(patterns)} patterns", _SUPPORTED
    for entry in patterns:
        plain = _ESCAPE.sub("", entry)
        if (
            len(entry) > _MAX_PATTERN_CHARS
            or len(_REPETITION.findall(plain)) > _MAX_REPETITIONS
            or _REPEATED_GROUP.search(plain)
        ):
            yield entry, _SUPPORTED
        try:
            re.compile(entry.removeprefix("re:"))
        except (re.error, RecursionError, OverflowError) as error:
            yield entry, f"valid patterns ({error})"
