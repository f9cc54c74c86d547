"""Which tools a model may call, or has to, and the grammar that sees to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pagemill.render.output_machine import Formats
from pagemill.server.errors import ApiError, bad_request, not_implemented
from pagemill.server.grammar import call_grammar
from pagemill.server.grammar.constraint import Constraint
from pagemill.server.protocol.chat import ChatRequest, tool_schemas
from pagemill.structured.grammar import GrammarError

_PARAM = "tool_choice"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`tool_choice`: with mode "required" the output is calls and nothing else, of the tools
    `names`."""

    mode: Literal["none", "auto", "required"]
    names: tuple[str, ...] = ()
    is_single: bool = False


def read_tool_choice(request: ChatRequest) -> ToolChoice:
    """What the request says; `auto` if it says nothing.

    Raises:
        ApiError: 400 for a choice that there is not, or of a tool that the request does not have.
    """
    names = tuple(tool["function"]["name"] for tool in request.tools)
    is_single = not request.parallel_tool_calls
    match request.tool_choice:
        case "none":
            return ToolChoice("none")
        case None | "auto":
            return ToolChoice("auto" if names else "none", names, is_single)
        case "required":
            if not names:
                raise bad_request("`tool_choice` is `required`, but there are no `tools`.", _PARAM)
            return ToolChoice("required", names, is_single)
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}:
            if mode not in ("auto", "required") or not isinstance(tools, list) or not tools:
                raise bad_request(
                    "`tool_choice.allowed_tools` has no `mode` or no `tools`.", _PARAM
                )
            allowed = tuple(_named(tool, names) for tool in cast(list[Any], tools))
            return ToolChoice(mode, allowed, is_single)
        case {"type": "function"}:
            return ToolChoice("required", (_named(request.tool_choice, names),), is_single=True)
        case _:
            raise bad_request(
                "`tool_choice` must be `none`, `auto`, `required` or the name of a function"
                ' (`{"type": "function", "function": {"name": ...}}`).',
                _PARAM,
            )


def call_constraint(
    request: ChatRequest,
    choice: ToolChoice,
    answer: Constraint | None,
    formats: Formats,
    ends: Sequence[int],
) -> Constraint | None:
    """What the output has to be: calls, as `choice` says, or else what `answer` says.

    Args:
        request: has the tools.
        choice: the request's.
        answer: what the request says of outputs beside calls.
        formats: the model's; they can call.
        ends: tokens that end an output.

    Raises:
        ApiError: 400 for tools that the model's format cannot spell, if they have to be called or
            are `strict`; 501 if no call can be written as a grammar.
    """
    if choice.mode == "none":
        return _in_message(answer, formats, ends)
    is_required = choice.mode == "required"
    if not call_grammar.can_spell(formats):
        if is_required:
            raise not_implemented(
                "`tool_choice` can be `auto` or `none` for this model: there is no grammar of the"
                " calls in its format.",
                _PARAM,
            )
        return answer
    is_strict = any(tool["function"].get("strict") is True for tool in request.tools)
    try:
        return _constraint(request, choice, answer, formats, ends, is_strict)
    except GrammarError as error:
        if is_required or is_strict:
            raise bad_request(f"`tools` cannot be used: {error}.", "tools") from error
        return answer


def _in_message(
    answer: Constraint | None, formats: Formats, ends: Sequence[int]
) -> Constraint | None:
    """What the whole output has to be if its answer is a message."""
    can_spell = formats.messages is not None and call_grammar.can_spell(formats)
    if answer is None or answer.schema is None or not can_spell:
        return answer
    grammar = call_grammar.json_answer(formats, answer.schema, ends=ends)
    return replace(answer, grammar=grammar, spans_reasoning=True)


def _constraint(
    request: ChatRequest,
    choice: ToolChoice,
    answer: Constraint | None,
    formats: Formats,
    ends: Sequence[int],
    is_strict: bool,
) -> Constraint | None:
    schemas = tool_schemas(request.tools)
    tools = {name: schemas.get(name) for name in choice.names}
    is_single, spans = choice.is_single, call_grammar.spans_reasoning(formats)
    if choice.mode == "required":
        if answer is not None and answer.schema is None:
            raise _excluded(answer)
        grammar = call_grammar.required_calls(formats, tools, is_single=is_single, ends=ends)
        return Constraint(grammar=grammar, param="tools", spans_reasoning=spans)
    if answer is not None:
        if answer.schema is None:
            return answer
        grammar = call_grammar.calls_or_json(
            formats, tools, answer.schema, is_single=is_single, ends=ends
        )
        return Constraint(grammar=grammar, param=answer.param, spans_reasoning=spans)
    grammar = call_grammar.calls_from_opener(formats, tools, is_single=is_single, ends=ends)
    if grammar is None and is_strict:
        grammar = call_grammar.calls_from_text(formats, tools, is_single=is_single)
    if grammar is None:
        return None
    return Constraint(
        grammar=grammar, param="tools", spans_reasoning=True, is_optional=not is_strict
    )


def _named(tool: Any, names: Sequence[str]) -> str:
    fields = cast(dict[str, Any], tool) if isinstance(tool, dict) else {}
    function = fields.get("function", fields)
    name = cast(dict[str, Any], function).get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names:
        raise bad_request(
            f"`tool_choice` names {str(name)[:64]!r}, which is none of `tools`.", _PARAM
        )
    return name


def _excluded(answer: Constraint) -> ApiError:
    return bad_request(
        f"`tool_choice` and `{answer.param}` exclude each other: a call is no other text.", _PARAM
    )
