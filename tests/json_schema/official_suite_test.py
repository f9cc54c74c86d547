"""The official JSON Schema suite: which valid values are admitted, and which invalid ones.

`pytest -s` prints all that differ. Numbers are upper bounds; docs/http.md says what they are.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from pagemill.structured.grammar import GrammarError

from tests.json_schema.schemas import Matchers, admits, official_suite

_MAX_VALID_REFUSED = 24
_MAX_INVALID_ADMITTED = 5


def test_valid_values_are_admitted() -> None:
    groups, remotes = official_suite(Path(os.environ["PAGEMILL_JSON_SCHEMA_SUITE"]))
    matchers = Matchers(remotes)
    counts: Counter[str] = Counter()
    for group in groups:
        counts["schemas"] += 1
        num_valid = sum(valid for _, _, valid in group.tests)
        try:
            begin = matchers.begin(group.schema)
        except GrammarError as error:
            counts["schemas refused"] += 1
            counts["valid, not admitted"] += num_valid
            if num_valid:
                print(f"refused: {group.name}: {error}")
            continue
        for description, value, valid in group.tests:
            counts["valid" if valid else "invalid"] += 1
            if admits(begin, value) != valid:
                counts["valid, not admitted" if valid else "invalid, admitted"] += 1
                print(f"{'valid' if valid else 'invalid'}: {group.name}: {description}")
    print(dict(counts))
    assert counts["valid, not admitted"] <= _MAX_VALID_REFUSED
    assert counts["invalid, admitted"] <= _MAX_INVALID_ADMITTED
