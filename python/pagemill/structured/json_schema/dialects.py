"""Which keywords a schema has: by its draft, and by the vocabularies that its `$schema` names.

From 2019-09 on a schema of schemas lists vocabularies. Those of the drafts themselves have `format`
as an annotation; where `$schema` is missing, or lists none, it is asserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

NEWEST = 2020
_DRAFTS = (
    ("draft-03", 3), ("draft-04", 4), ("draft-06", 6), ("draft-07", 7),
    ("2019-09", 2019), ("2020-12", 2020),
)  # fmt: skip
_VALIDATION = frozenset(
    {
        "const", "dependentRequired", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxContains",
        "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
        "minProperties", "minimum", "multipleOf", "pattern", "required", "type", "uniqueItems",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dialect:
    """A draft, and the keywords of it that say nothing."""

    draft: int
    ignored: frozenset[str] = frozenset()


def dialect(uri: str, metaschema: Any, otherwise: Dialect) -> Dialect:
    """The dialect of schemas whose `$schema` is `uri`. `metaschema`: the document there, or None.
    `otherwise`: for those of no known draft."""
    draft = next((draft for part, draft in _DRAFTS if part in uri), None)
    if draft is None:
        return otherwise
    if draft < 2019 or not isinstance(metaschema, dict):
        return Dialect(draft)
    vocabulary = cast(dict[str, Any], metaschema).get("$vocabulary")
    if not isinstance(vocabulary, dict):
        return Dialect(draft)
    return Dialect(draft, _ignored(cast(Mapping[str, Any], vocabulary)))


def _ignored(vocabulary: Mapping[str, Any]) -> frozenset[str]:
    names = {uri.rpartition("/vocab/")[2]: needed for uri, needed in vocabulary.items()}
    ignored = frozenset[str]() if "validation" in names else _VALIDATION
    # Of 2019-09 is `format`, which is asserted if it is needed; of 2020-12 `format-assertion`.
    is_asserted = "format-assertion" in names or names.get("format") is True
    return ignored if is_asserted else ignored | {"format"}
