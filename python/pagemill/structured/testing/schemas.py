"""Random JSON Schemas of the kinds that every back end takes."""

from __future__ import annotations

import random
from typing import Any

_NAMES = ("a", "name", "b c", "x/y", 'q"t', "back\\s", "é", "", "type")
_VALUES = ("a", "yes", "no", "x/y", 'q"t', "é", "", 12, -5, True, False, None)
_SCALARS = ("string", "integer", "number", "boolean", "null")


def random_schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema with at most `depth` others around one of its parts."""
    kinds = ["any", "enum", "scalar", "types"]
    if depth > 0:
        kinds += ["anyOf", "array", "map", "object", "object"]
    match rng.choice(kinds):
        case "any":
            return {}
        case "enum":
            return {"enum": rng.sample(_VALUES, rng.randint(1, 4))}
        case "scalar":
            return {"type": rng.choice(_SCALARS)}
        case "types":
            return {"type": rng.sample(_SCALARS, 2)}
        case "anyOf":
            return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
        case "array":
            least = rng.randint(0, 2)
            items = random_schema(rng, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + 2}
        case "map":
            return {"type": "object", "additionalProperties": random_schema(rng, depth - 1)}
        case _:
            names = rng.sample(_NAMES, rng.randint(0, 4))
            properties = {name: random_schema(rng, depth - 1) for name in names}
            required = [name for name in names if rng.random() < 0.5]
            closed = {"additionalProperties": False, "required": required}
            return {"type": "object", "properties": properties, **closed}
