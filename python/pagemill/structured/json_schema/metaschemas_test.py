"""The schemas of schemas are those that `jsonschema` has."""

import json
from pathlib import Path

import jsonschema_specifications

from pagemill.structured import json_schema


def test_they_are_the_published_ones() -> None:
    path = Path(json_schema.__file__).parent / "metaschemas.json"
    registry = jsonschema_specifications.REGISTRY
    published = {uri.rstrip("#"): registry.contents(uri) for uri in registry}
    assert json.loads(path.read_text()) == published
