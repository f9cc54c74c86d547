"""The official JSON Schema suite: which valid values are admitted, and which invalid ones.

`pytest -s` prints all that differ. `format` is asserted where the suite's folder says so.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from pagemill.structured.grammar import GrammarError

from tests.json_schema.schemas import Matchers, admits, official_suite

_PUNYCODE = "whether a label is Punycode of letters that may be there is no regular language"
_OPPOSITE = "the opposite of `unevaluatedProperties` is not written"
_NOT_ADMITTED = {
    "draft7/optional/format/idn-hostname.json: valid Chinese Punycode": _PUNYCODE,
    "draft2019-09/optional/format/idn-hostname.json: valid Chinese Punycode": _PUNYCODE,
    "draft2020-12/optional/format/idn-hostname.json: valid Chinese Punycode": _PUNYCODE,
    "draft2019-09/not.json: unevaluated property": _OPPOSITE,
    "draft2020-12/not.json: unevaluated property": _OPPOSITE,
}
"""Valid values that are not admitted, by their files and descriptions, and why."""
_MAX_INVALID_ADMITTED = 5


def test_valid_values_are_admitted() -> None:
    groups, remotes = official_suite(Path(os.environ["PAGEMILL_JSON_SCHEMA_SUITE"]))
    matchers = Matchers(remotes)
    counts: Counter[str] = Counter()
    not_admitted: set[str] = set()
    for group in groups:
        counts["schemas"] += 1
        file = group.name.partition(": ")[0]
        valid_ones = [f"{file}: {description}" for description, _, valid in group.tests if valid]
        try:
            begin = matchers.begin(group.schema)
        except GrammarError as error:
            counts["schemas refused"] += 1
            counts["valid"] += len(valid_ones)
            counts["invalid"] += len(group.tests) - len(valid_ones)
            not_admitted.update(valid_ones)
            if valid_ones:
                print(f"refused: {group.name}: {error}")
            continue
        for description, value, valid in group.tests:
            counts["valid" if valid else "invalid"] += 1
            if admits(begin, value) == valid:
                continue
            print(f"{'valid' if valid else 'invalid'}: {group.name}: {description}")
            if valid:
                not_admitted.add(f"{file}: {description}")
            else:
                counts["invalid, admitted"] += 1
    print(dict(counts))
    assert not_admitted == _NOT_ADMITTED.keys()
    assert counts["invalid, admitted"] <= _MAX_INVALID_ADMITTED
