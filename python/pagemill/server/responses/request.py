"""A request for a response as a request for a chat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import Any, cast

from pagemill.engine.sampling import SamplingParams
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.responses import (
    MAX_ITEMS,
    ConversationRef,
    Response,
    ResponsesRequest,
    TextOptions,
)
from pagemill.server.protocol.sampling import GenerationRequest
from pagemill.server.responses.custom_tools import custom_function
from pagemill.server.responses.ids import new_id
from pagemill.server.responses.input import Item, continues_last, messages_of
from pagemill.server.responses.tool_offers import is_offer

# Fields of chats that refusals name, and what they are called here.
_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
}
_TEXT = {"type": "text"}
_LOGPROBS = "message.output_text.logprobs"
_FIELDS = [name for name in GenerationRequest.__struct_fields__ if name != "response_format"]


def chat_request(body: ResponsesRequest, items: Sequence[Item]) -> ChatRequest:
    """The chat that has `items`, the conversation with the request's own, as its messages.

    Raises:
        ApiError: 400 naming the field.
    """
    if body.top_logprobs and not wants_logprobs(body):
        raise bad_request(f"`top_logprobs` needs {_LOGPROBS!r} in `include`.", "top_logprobs")
    if body.text.verbosity not in (None, "medium"):
        raise bad_request(
            "`text.verbosity` is not supported: say in a message how long the answer should be.",
            "text.verbosity",
        )
    messages = messages_of(body.instructions, items)
    if not 0 < len(messages) <= MAX_ITEMS:
        raise bad_request(f"`input` must have 1 to {MAX_ITEMS} items.", "input")
    continues = continues_last(items)
    shared: dict[str, Any] = {name: getattr(body, name) for name in _FIELDS}
    if body.truncation == "auto" and body.truncate_prompt_tokens is None:
        shared["truncate_prompt_tokens"] = -1
    return ChatRequest(
        **shared,
        messages=messages,
        max_completion_tokens=body.max_output_tokens,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        chat_template_kwargs=body.chat_template_kwargs,
        reasoning_effort=body.reasoning.effort,
        tools=[
            _tool(tool, f"tools[{at}]") for at, tool in enumerate(body.tools) if not is_offer(tool)
        ],
        tool_choice=_tool_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_response_format(body.text.format or _TEXT),
        logprobs=wants_logprobs(body),
        top_logprobs=body.top_logprobs,
    )


def conversation_of(body: ResponsesRequest) -> ConversationRef | None:
    """The conversation that the request continues."""
    named = body.conversation
    return ConversationRef(named) if isinstance(named, str) else named


def wants_logprobs(body: ResponsesRequest) -> bool:
    """Whether the answer's tokens are wanted with their log probabilities."""
    return _LOGPROBS in body.include


@contextlib.contextmanager
def renamed() -> Generator[None]:
    """A chat's refusal in here has the names that the fields have in this API."""
    try:
        yield
    except ApiError as error:
        raise _renamed(error) from error


def refuse_server_tools(body: ResponsesRequest) -> None:
    """Raises a 400 ApiError if the server would have to run tools: only responses do that."""
    if any(tool.get("type") == "mcp" for tool in body.tools):
        raise bad_request("`tools` of type `mcp` are for /v1/responses.", "tools")


def new_response(
    body: ResponsesRequest, model: str, sampling: SamplingParams, *, store: bool
) -> Response:
    """A response in progress.

    Args:
        body: the request.
        model: the name of what answers.
        sampling: with the model's defaults.
        store: whether the response is going to be stored.
    """
    assert sampling.temperature is not None and sampling.top_p is not None
    return Response(
        id=new_id("resp"),
        created_at=int(time.time()),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        model=model,
        parallel_tool_calls=body.parallel_tool_calls,
        previous_response_id=body.previous_response_id,
        conversation=conversation_of(body),
        prompt_cache_key=body.prompt_cache_key,
        reasoning=body.reasoning,
        safety_identifier=body.safety_identifier,
        service_tier=body.service_tier,
        store=store,
        temperature=sampling.temperature,
        text=TextOptions(
            format=body.text.format or _TEXT, verbosity=body.text.verbosity or "medium"
        ),
        tool_choice=body.tool_choice,
        tools=body.tools,
        top_logprobs=body.top_logprobs,
        top_p=sampling.top_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        truncation=body.truncation,
        user=body.user,
        metadata=body.metadata,
    )


def _renamed(error: ApiError) -> ApiError:
    message = error.message
    for chat, here in _NAMES.items():
        message = message.replace(f"`{chat}", f"`{here}")
    param = _NAMES.get(error.param or "", error.param)
    refusal = ApiError(error.status, message, param, error.type_name, error.retry_after_s)
    refusal.is_by_engine = error.is_by_engine
    return refusal


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    kind, name = tool.get("type"), tool.get("name")
    if kind not in ("function", "custom"):
        raise bad_request(
            f"`{where}.type` is {str(kind)[:60]!r}; this server has tools of type `function`,"
            " `custom` and `mcp`.",
            "tools",
        )
    if not isinstance(name, str) or not name:
        raise bad_request(f"`{where}.name` must be a non-empty string.", "tools")
    if kind == "custom":
        return custom_function(tool, where)
    if not isinstance(tool.get("parameters"), dict | None):
        raise bad_request(f"`{where}.parameters` must be a JSON Schema.", "tools")
    kept = ("name", "description", "parameters", "strict")
    function = {key: tool[key] for key in kept if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    match choice:
        case "none" | "auto" | "required":
            return choice
        case {"type": "function" | "custom", "name": str()}:
            return {"type": "function", "function": {"name": choice["name"]}}
        case {"type": "mcp", "server_label": str()}:
            return {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [choice]},
            }
        case {"type": "allowed_tools", "mode": mode, "tools": list()}:
            allowed = {"mode": mode, "tools": choice["tools"]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            raise bad_request(
                "`tool_choice` must be `none`, `auto`, `required`, or"
                ' `{"type": "function", "name": ...}`, or `allowed_tools` with `mode` and `tools`.',
                "tool_choice",
            )


def _response_format(format_: dict[str, Any]) -> dict[str, Any] | None:
    kind = format_.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind != "json_schema":
        raise bad_request(
            "`text.format.type` must be `text`, `json_object` or `json_schema`.", "text.format"
        )
    schema: Any = format_.get("schema")
    if not isinstance(schema, dict):
        raise bad_request("`text.format.schema` must be a JSON Schema.", "text.format")
    return {"type": kind, "json_schema": {"schema": cast(Any, schema)}}
