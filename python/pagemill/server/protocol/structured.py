"""Fields that say what an output has to be: `response_format`, `structured_outputs` and the older
`guided_*`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET, UnsetType

from pagemill.server.errors import ApiError, bad_request
from pagemill.server.grammar.constraint import Constraint
from pagemill.structured import grammar as grammars
from pagemill.structured.grammar import Grammar, GrammarError
from pagemill.structured.structural_tag import structural_tag

_PARAM = "structured_outputs"
_SCHEMAS = {"json_object": grammars.ANY_OBJECT}


class StructuredOutputs(msgspec.Struct, kw_only=True, frozen=True):
    """`structured_outputs`: one of these."""

    json: Any = UNSET
    regex: str | UnsetType = UNSET
    choice: list[str] | UnsetType = UNSET
    grammar: str | UnsetType = UNSET
    json_object: bool | UnsetType = UNSET
    structural_tag: Any = UNSET


class StructuredFields(Protocol):
    """The fields of a request."""

    @property
    def response_format(self) -> dict[str, Any] | None: ...
    @property
    def structured_outputs(self) -> StructuredOutputs | None: ...
    @property
    def guided_json(self) -> Any: ...
    @property
    def guided_regex(self) -> str | None: ...
    @property
    def guided_choice(self) -> list[str] | None: ...
    @property
    def guided_grammar(self) -> str | None: ...


STRUCTURED_FIELDS = (
    *("response_format", "structured_outputs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
)
"""The names of `StructuredFields`."""


def wanted_output(
    request: StructuredFields, markers: Mapping[str, int], eos_token_ids: Sequence[int]
) -> Constraint | None:
    """What the output has to be, if the request says it.

    `markers`: texts that the model writes as one token; `eos_token_ids` end an output.

    Raises:
        ApiError: 400 for a field that says nothing, or for two of them.
    """
    found = _guided(request)
    if request.structured_outputs is not None:
        found += [(_PARAM, key, value) for key, value in _stated(request.structured_outputs)]
    format_ = request.response_format
    if format_ is not None and format_.get("type") != "text":
        found.append(("response_format", *_of_format(format_)))
    if not found:
        if request.structured_outputs is not None:
            raise bad_request(
                "`structured_outputs` needs `json`, `regex`, `choice`, `grammar`, `json_object` or"
                " `structural_tag`.",
                _PARAM,
            )
        return None
    if len(found) > 1:
        names = " and ".join(f"`{param}`" for param, _, _ in found)
        raise bad_request(
            f"{names} say what the output has to be; only one of them may be sent.", found[1][0]
        )
    ((param, kind, value),) = found
    try:
        schema = _schema(value, param) if kind == "json" else _SCHEMAS.get(kind)
        if schema is None:
            grammar = _grammar(kind, value, param, markers, eos_token_ids)
        else:
            grammar = grammars.json_schema(schema)
        return Constraint(grammar=grammar, param=param, schema=schema)
    except GrammarError as error:
        raise bad_request(f"`{param}` cannot be used: {error}.", param) from error


def _guided(request: StructuredFields) -> list[tuple[str, str, Any]]:
    guided = (
        ("guided_json", "json", request.guided_json),
        ("guided_regex", "regex", request.guided_regex),
        ("guided_choice", "choice", request.guided_choice),
        ("guided_grammar", "grammar", request.guided_grammar),
    )
    return [row for row in guided if row[2] is not None]


def _stated(fields: StructuredOutputs) -> list[tuple[str, Any]]:
    stated = [(name, getattr(fields, name)) for name in fields.__struct_fields__]
    return [(name, value) for name, value in stated if value is not UNSET and value is not False]


def _of_format(fields: dict[str, Any]) -> tuple[str, Any]:
    kind = fields.get("type")
    if kind == "json_object":  # with `schema`: llama.cpp's, Together's and Fireworks' form
        schema = fields.get("schema")
        return ("json_object", True) if schema is None else ("json", schema)
    if kind == "json_schema":
        described = fields.get("json_schema")
        schema: Any = None
        if isinstance(described, dict):
            schema = cast(dict[str, Any], described).get("schema")
        if not isinstance(schema, dict | bool):
            raise bad_request(
                "`response_format.json_schema.schema` must be a JSON Schema.", "response_format"
            )
        return "json", cast(Any, schema)
    if kind == "structural_tag":
        return "structural_tag", fields
    raise bad_request(
        "`response_format.type` must be `text`, `json_object`, `json_schema` or `structural_tag`.",
        "response_format",
    )


def _grammar(
    kind: str, value: Any, param: str, markers: Mapping[str, int], eos_token_ids: Sequence[int]
) -> Grammar:
    match kind:
        case "regex":
            return grammars.regex(value)
        case "choice":
            return grammars.choice(value)
        case "grammar":
            return grammars.of_text(value)
        case _:
            tag = _decoded(value, param, "a structural tag")
            return structural_tag(tag, markers, eos_token_ids)


def _schema(value: Any, param: str) -> dict[str, Any] | bool:
    value = _decoded(value, param, "a JSON Schema")
    if not isinstance(value, dict | bool):
        raise _is_not(param, "a JSON Schema")
    return cast(dict[str, Any] | bool, value)


def _decoded(value: Any, param: str, what: str) -> Any:
    """`value`, which may be the text of an object."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise _is_not(param, what) from None


def _is_not(param: str, what: str) -> ApiError:
    return bad_request(f"`{param}` must have {what}: an object, or its text.", param)
