"""Where the references of a schema lead: `$ref`, `$id`, `$anchor`, `$dynamicRef` and the like.

    documents = Documents(schema, other_documents)
    at = documents.root()
    found = documents.resolve("#/$defs/name", at.place)

Documents are never fetched: besides the schema itself there is what `other_documents` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

from pagemill.structured.json_schema.dialects import NEWEST, Dialect, dialect
from pagemill.structured.json_schema.errors import SchemaError, UnwritableError

FindDocument = Callable[[str], Any]
"""The document at a URI without fragment; None if there is none."""
_BY_NAME = (
    "$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies",
)  # fmt: skip
_SINGLE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTED = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAX_DOCUMENTS = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where a schema stands. `scope`: resources with dynamic anchors, the outermost first."""

    base: str
    dialect: Dialect
    scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """A schema and its place."""

    schema: Any
    place: Place


@dataclass(slots=True)
class _Resource:
    """A document, or the part of one that has an `$id`."""

    root: Any
    dialect: Dialect
    anchors: dict[str, Any] = field(default_factory=dict[str, Any])
    dynamic_anchors: dict[str, Any] = field(default_factory=dict[str, Any])
    is_recursive: bool = False


class Documents:
    """The resources of a schema and of the documents that it refers to."""

    def __init__(self, schema: Any, find_document: FindDocument) -> None:
        self._find = find_document
        self._resources: dict[str, _Resource] = {}
        self._bases: dict[int, str] = {}
        """The base URI of each object within a resource, by its identity."""
        self._num_documents = 0
        self._root = self._add(schema, "", Dialect(NEWEST))

    def root(self) -> Located:
        """The schema itself."""
        return self._located(self._resources[self._root].root, self._root, ())

    def inside(self, schema: Any, place: Place) -> Located:
        """A part of a schema at `place`; it may have an `$id` of its own."""
        base = self._bases.get(id(schema), place.base)
        return (
            Located(schema, place)
            if base == place.base
            else self._located(schema, base, place.scope)
        )

    def resolve(self, reference: str, place: Place) -> Located:
        """Where `$ref` leads.

        Raises:
            UnwritableError: to no document that is known, or to nothing in it.
        """
        uri, fragment = urldefrag(_joined(place.base, reference))
        self._open(uri, reference, place.dialect)
        return self._located(self._target(uri, unquote(fragment), reference), uri, place.scope)

    def resolve_dynamic(self, reference: str, place: Place) -> Located:
        """Where `$dynamicRef` leads. Raises as `resolve`."""
        found = self.resolve(reference, place)
        uri, anchor = urldefrag(_joined(place.base, reference))
        if anchor in self._resources[uri].dynamic_anchors:
            for base in found.place.scope:
                dynamic = self._resources[base].dynamic_anchors
                if anchor in dynamic:
                    return self._located(dynamic[anchor], base, place.scope)
        return found

    def resolve_recursive(self, place: Place) -> Located:
        """Where `$recursiveRef: "#"` leads. Raises as `resolve`."""
        found = self.resolve("#", place)
        if self._resources[found.place.base].is_recursive:
            for base in found.place.scope:
                if self._resources[base].is_recursive:
                    return self._located(self._resources[base].root, base, place.scope)
        return found

    def _located(self, schema: Any, base: str, scope: tuple[str, ...]) -> Located:
        base = self._bases.get(id(schema), base)
        resource = self._resources[base]
        is_dynamic = resource.is_recursive or resource.dynamic_anchors
        if is_dynamic and base not in scope:
            scope = (*scope, base)
        return Located(schema, Place(base, resource.dialect, scope))

    def _open(self, uri: str, reference: str, otherwise: Dialect) -> None:
        if uri in self._resources:
            return
        document = self._find(uri)
        if document is None or self._num_documents == _MAX_DOCUMENTS:
            raise UnwritableError(
                f"`$ref` {reference[:200]!r} names a document that is not known; none is fetched,"
                " so put its schemas into `$defs`"
            )
        self._num_documents += 1
        added = self._add(document, uri, otherwise)
        self._resources[uri] = self._resources[added]

    def _target(self, uri: str, fragment: str, reference: str) -> Any:
        resource = self._resources[uri]
        if fragment in resource.anchors:
            return resource.anchors[fragment]
        at = resource.root
        if fragment and not fragment.startswith("/"):
            raise UnwritableError(f"`$ref` {reference[:200]!r} names an anchor that does not exist")
        for name in fragment.split("/")[1:]:
            at = _member(at, name.replace("~1", "/").replace("~0", "~"))
            if at is None:
                raise UnwritableError(f"`$ref` {reference[:200]!r} leads nowhere")
        return at

    def _add(self, document: Any, uri: str, otherwise: Dialect) -> str:
        """Takes the resources of a document: the base URI of its root."""
        resource = _Resource(document, self._dialect(document, otherwise))
        identified = _identifier(document, resource.dialect.draft)
        root = urldefrag(_joined(uri, identified))[0] if identified else uri
        self._resources.setdefault(root, resource)
        waiting: list[tuple[Any, str]] = [(document, root)]
        while waiting:
            at, base = waiting.pop()
            if isinstance(at, dict):
                found = cast(dict[str, Any], at)
                base = self._base(found, base, is_root=at is document)
                self._bases[id(found)] = base
                waiting += ((part, base) for part in _parts(found))
        return root

    def _base(self, schema: Mapping[str, Any], base: str, *, is_root: bool) -> str:
        """Notes the identifiers of `schema`; the base URI that it has."""
        outer = self._resources[base].dialect
        identifier = _identifier(schema, outer.draft)
        if identifier and not is_root:
            uri, fragment = urldefrag(_joined(base, identifier))
            if identifier.startswith("#"):
                self._resources[base].anchors.setdefault(unquote(fragment), schema)
            else:
                base = uri
                self._resources.setdefault(uri, _Resource(schema, self._dialect(schema, outer)))
        resource = self._resources[base]
        for name, anchors in (("$anchor", resource.anchors), ("$dynamicAnchor", resource.anchors)):
            if isinstance(schema.get(name), str):
                anchors.setdefault(schema[name], schema)
        if isinstance(schema.get("$dynamicAnchor"), str):
            resource.dynamic_anchors.setdefault(schema["$dynamicAnchor"], schema)
        if schema.get("$recursiveAnchor") is True and schema is resource.root:
            resource.is_recursive = True
        return base

    def _dialect(self, schema: Any, otherwise: Dialect) -> Dialect:
        name = cast(dict[str, Any], schema).get("$schema") if isinstance(schema, dict) else None
        if not isinstance(name, str):
            return otherwise
        return dialect(name, self._find(name.removesuffix("#")), otherwise)


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas in a schema."""
    for name in _BY_NAME:
        if isinstance(schema.get(name), dict):
            yield from schema[name].values()
    for name in _SINGLE:
        yield schema.get(name)
    for name in _LISTED:
        if isinstance(schema.get(name), list):
            yield from schema[name]


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):  # also where `urljoin` does not know the scheme
        return urldefrag(base)[0] + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        raise SchemaError(f"{reference[:200]!r} is no reference") from None


def _identifier(schema: Any, draft: int) -> str:
    if not isinstance(schema, dict):
        return ""
    found = cast(dict[str, Any], schema)
    if draft <= 7 and "$ref" in found:
        return ""
    name = found.get("$id", found.get("id") if draft <= 4 else None)
    return name if isinstance(name, str) else ""


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).get(name)
    if isinstance(value, list) and name.isdigit():
        items = cast(list[Any], value)
        return items[int(name)] if int(name[:9]) < len(items) else None
    return None
