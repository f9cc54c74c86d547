"""`POST /v1/chat/completions`."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagemill.render.output_parser import ParserOptions
from pagemill.server.admission import read_body, tenant_of
from pagemill.server.chat_wording import ChatWording
from pagemill.server.disconnect import until_disconnect
from pagemill.server.errors import bad_request, not_implemented
from pagemill.server.event_stream import EventStream
from pagemill.server.generation import Generation
from pagemill.server.pipeline import GenerationOptions, Pipeline
from pagemill.server.protocol.chat import RULES, ChatRequest, check_messages, check_tools
from pagemill.server.protocol.decode import decode_request
from pagemill.server.protocol.sampling import to_sampling
from pagemill.server.request_ids import name_request
from pagemill.server.respond import ResponseEvents, whole_response
from pagemill.server.state import state_of


async def create(request: Request) -> Response:
    """Answers the last of a list of messages."""
    state = state_of(request)
    body = await read_body(request, state.config.max_body_bytes)
    asked = decode_request(body, ChatRequest, RULES)
    pipeline = state.pipeline
    pipeline.model.check_name(asked.model)
    pipeline.model.check_generates()
    name = f"chatcmpl-{name_request(request, asked.request_id)}"
    generation = await _start(pipeline, asked, request)
    wording = ChatWording(pipeline, asked, name, generation)
    if asked.stream:
        interval = max(state.config.stream_interval, asked.stream_interval)
        return EventStream(ResponseEvents(generation, wording, interval))
    response = await until_disconnect(whole_response(generation, wording), request.receive)
    return Response(msgspec.json.encode(response), media_type="application/json")


async def _start(pipeline: Pipeline, asked: ChatRequest, request: Request) -> Generation:
    """Renders and submits.

    Raises:
        ApiError: the request cannot be served.
    """
    _check(asked)
    parsed = _parsed(pipeline, asked)
    pipeline.check_choices(1, asked.n)
    sampling = to_sampling(
        asked,
        logprobs=asked.top_logprobs if asked.logprobs else None,
        prompt_logprobs=asked.prompt_logprobs,
        max_logprobs=pipeline.model.max_logprobs,
        logprobs_param="top_logprobs",
    )
    render = functools.partial(
        pipeline.renderer.render_chat,
        asked.messages,
        asked.tools or None,
        asked.add_generation_prompt,
        asked.continue_final_message,
        _template_variables(asked),
    )
    token_ids = await pipeline.rendering.chat(render, asked.add_special_tokens, request.receive)
    requested, requested_param = asked.max_completion_tokens, "max_completion_tokens"
    if requested is None:
        requested, requested_param = asked.max_tokens, "max_tokens"
    options = GenerationOptions(
        max_tokens=requested,
        max_tokens_param=requested_param,
        default_max_tokens=pipeline.model.defaults.max_tokens,
        truncate_prompt_tokens=asked.truncate_prompt_tokens,
        truncation_side=asked.truncation_side,
        cache_salt=asked.cache_salt or "",
        priority=asked.priority,
        tenant=tenant_of(request),
        param="messages",
        parsed=parsed,
    )
    return await pipeline.generate([token_ids], sampling, options)


def _check(asked: ChatRequest) -> None:
    check_messages(asked.messages)
    check_tools(asked.tools)
    if asked.tool_choice not in (None, "none", "auto"):
        raise not_implemented(
            "`tool_choice` can be `auto` or `none` in this version: output cannot be constrained to"
            " a call.",
            "tool_choice",
        )
    if asked.top_logprobs and not asked.logprobs:
        raise bad_request("`top_logprobs` needs `logprobs: true`.", "top_logprobs")
    if asked.prompt_logprobs is not None and asked.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")
    in_kwargs = "chat_template" in asked.chat_template_kwargs
    if asked.chat_template is not None or in_kwargs:
        field = "chat_template_kwargs" if in_kwargs else "chat_template"
        raise bad_request(
            f"`{field}` cannot bring a template with a request: it would run on the server. Start"
            " the server with --chat-template.",
            field,
        )
    if asked.continue_final_message and asked.add_generation_prompt:
        raise bad_request(
            "`continue_final_message` and `add_generation_prompt` exclude each other: set"
            " `add_generation_prompt: false`.",
            "continue_final_message",
        )


def _parsed(pipeline: Pipeline, asked: ChatRequest) -> ParserOptions:
    """What is read out of the model's output.

    Raises:
        ApiError: calls of tools would have to be, but their format is not known.
    """
    formats = pipeline.renderer.formats
    may_call = bool(asked.tools) and asked.tool_choice != "none"
    if may_call and formats.tools is None:
        raise bad_request(
            "`tools` cannot be served: it is not known how this model writes calls. Start the"
            ' server with --tool-call-parser, or send `tool_choice: "none"`, with which the model'
            " is shown the tools and answers in text.",
            "tools",
        )
    content = asked.messages[-1].get("content") if asked.continue_final_message else None
    return ParserOptions(
        reasoning=True,
        tools=may_call,
        in_reasoning=isinstance(content, str) and formats.leaves_in_reasoning(content),
        max_calls=0 if asked.parallel_tool_calls else 1,
    )


def _template_variables(asked: ChatRequest) -> dict[str, Any]:
    variables = dict(asked.chat_template_kwargs)
    if asked.documents is not None:
        variables["documents"] = asked.documents
    if asked.reasoning_effort is not None:
        variables["reasoning_effort"] = asked.reasoning_effort
    return variables
