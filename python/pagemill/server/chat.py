"""A chat request as a generation: what every endpoint with messages begins with."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.errors import RenderError
from pagemill.render.media.media_files import wants_sound
from pagemill.render.output_parser import ParserOptions
from pagemill.render.renderers.base import RESPONSE_FORMAT
from pagemill.server.access.caller import Caller
from pagemill.server.chat_sampling import chat_sampling
from pagemill.server.choice_search import wanted_search
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation import Generation
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.grammar.tool_choice import ToolChoice, call_constraint, read_tool_choice
from pagemill.server.media_work import MediaBudget
from pagemill.server.output_limits import wanted_limits
from pagemill.server.pipeline import CheckedFields, CheckedRequest, Pipeline
from pagemill.server.protocol.chat import (
    ChatRequest,
    check_messages,
    check_tools,
    tool_schemas,
)
from pagemill.server.protocol.generate import GenerateRequest, as_generate_request
from pagemill.server.protocol.media import SentMedia, media_parts, without_urls
from pagemill.server.protocol.sampling import transfer_params
from pagemill.server.protocol.structured import wanted_output
from pagemill.server.rendering import Rendering
from pagemill.server.time_limit import in_time

MAX_SHARED_BYTES = 2**26
"""Of the template's variables times the conversations of a batch: each is rendered with them."""


async def start_chat(
    pipeline: Pipeline,
    request: ChatRequest,
    caller: Caller,
    *,
    clamps_max_tokens: bool = False,
) -> Generation:
    """Renders the request's messages, and submits the prompt; `clamps_max_tokens` is
    `checked_chat`'s.

    Raises:
        ApiError: the request cannot be served.
    """
    prompt, sampling, options = await checked_chat(
        pipeline, request, caller, clamps_max_tokens=clamps_max_tokens
    )
    return await pipeline.generate([prompt], sampling, options)


async def start_chats(
    pipeline: Pipeline, requests: Sequence[ChatRequest], caller: Caller
) -> Generation:
    """Renders the messages of requests that are otherwise equal, and submits all prompts.

    Raises:
        ApiError: one of them cannot be served; nothing runs then.
    """
    pipeline.check_choices(len(requests), 1, "messages")
    for index, request in enumerate(requests):
        with in_conversation(index):
            check_messages(request.messages)
    sampling, options = checked_fields(pipeline, requests[0], caller)
    rendering = pipeline.rendering
    variables = _template_variables(requests[0], rendering.renderer.chat_variables)
    num_bytes = len(msgspec.json.encode(variables))
    if num_bytes * len(requests) > MAX_SHARED_BYTES:
        raise bad_request(
            f"The template's variables have {num_bytes} bytes, and each of {len(requests)}"
            f" conversations is rendered with them; at most {MAX_SHARED_BYTES} bytes are read at a"
            " time: send fewer conversations.",
            "messages",
        )
    # Read together: the limits on media are those of a request.
    sent = [_media_of(index, request) for index, request in enumerate(requests)]
    every = [item for media in sent for item in media]
    prompts: list[RenderedPrompt] = []
    async with in_time(pipeline.deadline(requests[0].timeout, caller)):
        read = iter(await rendering.media.read(every, _media_owner(requests[0], caller)))
        for index, request in enumerate(requests):
            media = [next(read) for _ in sent[index]]
            with in_conversation(index):
                prompts.append(await _prompt(rendering, request, variables, media, caller))
    return await pipeline.generate(prompts, sampling, options)


async def render_chat(
    pipeline: Pipeline,
    request: ChatRequest,
    caller: Caller,
    *,
    clamps_max_tokens: bool = False,
) -> GenerateRequest:
    """The request of `/inference/v1/generate` whose output is that of `start_chat`.

    Raises:
        ApiError: the request could not be served.
    """
    prompt, _, options = await checked_chat(
        pipeline, request, caller, clamps_max_tokens=clamps_max_tokens
    )
    (fitted,) = pipeline.fit([prompt], options)
    if fitted.rendered.media:
        raise bad_request(
            "`messages` with media, or for an encoder, cannot be rendered: token ids do not say"
            " what is read.",
            "messages",
        )
    grammar = None
    if options.constraint is not None and not options.constraint.is_optional:
        grammar = await pipeline.output_grammar(fitted, options)
    logprobs = request.top_logprobs if request.logprobs else None
    return as_generate_request(request, fitted, logprobs, grammar)


async def checked_chat(
    pipeline: Pipeline,
    request: ChatRequest,
    caller: Caller,
    *,
    clamps_max_tokens: bool = False,
) -> CheckedRequest:
    """Checks the request, and renders its messages.

    With `clamps_max_tokens` a `max_tokens` that does not fit behind the prompt means all the room
    there is; otherwise it is refused.

    Raises:
        ApiError: the request cannot be served.
    """
    sampling, options = checked_fields(pipeline, request, caller, clamps_max_tokens)
    async with in_time(pipeline.deadline(request.timeout, caller)):
        prompt = await rendered_prompt(pipeline.rendering, request, caller)
    return CheckedRequest(prompt, sampling, options)


def checked_fields(
    pipeline: Pipeline, request: ChatRequest, caller: Caller, clamps_max_tokens: bool = False
) -> CheckedFields:
    """All of a request but its prompt, of which no file and no medium is read.

    Raises:
        ApiError: 400 naming the field.
    """
    _check(request)
    check_chat(request)
    choice = read_tool_choice(request)
    parsed = _parsed(pipeline, request, choice)
    pipeline.check_choices(1, request.n)
    sampling = chat_sampling(request, pipeline.model.max_logprobs)
    constraint = call_constraint(
        request,
        choice,
        wanted_output(request, pipeline.renderer.markers, pipeline.engine.eos_token_ids),
        pipeline.renderer.formats,
        pipeline.engine.eos_token_ids,
    )
    requested, requested_param = requested_tokens(request)
    default = pipeline.model.defaults.max_tokens
    if clamps_max_tokens:
        requested, default = None, requested
    options = GenerationOptions(
        max_tokens=requested,
        max_tokens_param=requested_param,
        default_max_tokens=default,
        truncate_prompt_tokens=request.truncate_prompt_tokens,
        truncation_side=request.truncation_side,
        cache_salt=request.cache_salt or "",
        priority=request.priority,
        timeout_s=request.timeout,
        caller=caller,
        kv_transfer_params=transfer_params(request),
        param="messages",
        constraint=constraint,
        limits=wanted_limits(request),
        search=wanted_search(request),
        parsed=parsed,
    )
    return CheckedFields(sampling, options)


async def rendered_prompt(
    rendering: Rendering,
    request: ChatRequest,
    caller: Caller,
    read: Sequence[PreparedMedia] = (),
    budget: MediaBudget | None = None,
) -> RenderedPrompt:
    """The messages and tools of `caller`'s request as a prompt. Its first media are `read` already,
    by `read_media`. `budget`: see `Media.read`.

    Raises:
        ApiError: see `Rendering.chat` and `Media`.
    """
    media = [*read, *await read_media(rendering, request, caller, len(read), budget)]
    variables = _template_variables(request, rendering.renderer.chat_variables)
    return await _prompt(rendering, request, variables, media, caller, budget)


async def read_media(
    rendering: Rendering,
    request: ChatRequest,
    caller: Caller,
    skipped: int = 0,
    budget: MediaBudget | None = None,
) -> Sequence[PreparedMedia]:
    """The media of the request's messages behind so many of them.

    Raises:
        ApiError: see `Media.read`.
    """
    sent = _media_in(request)[skipped:]
    return await rendering.media.read(sent, _media_owner(request, caller), budget)


async def _prompt(
    rendering: Rendering,
    request: ChatRequest,
    variables: dict[str, Any],
    media: Sequence[PreparedMedia],
    caller: Caller,
    budget: MediaBudget | None = None,
) -> RenderedPrompt:
    """The prompt with the request's `media`, which have been read."""
    render = functools.partial(
        rendering.renderer.render_chat,
        without_urls(request.messages) if media else request.messages,
        request.tools or None,
        request.add_generation_prompt,
        request.continue_final_message,
        variables,
    )
    prompt = await rendering.chat(render, request.add_special_tokens, caller.tenant)
    return await rendering.media.place(prompt, media, caller.tenant, budget)


def requested_tokens(request: ChatRequest) -> tuple[int | None, str]:
    """How many tokens the answer may have, and the field that says it."""
    if request.max_completion_tokens is not None:
        return request.max_completion_tokens, "max_completion_tokens"
    return request.max_tokens, "max_tokens"


def check_chat(request: ChatRequest) -> None:
    """Checks what a prompt is made of.

    Raises:
        ApiError: 400 naming the field.
    """
    check_messages(request.messages)
    check_tools(request.tools)
    in_kwargs = "chat_template" in request.chat_template_kwargs
    if request.chat_template is not None or in_kwargs:
        field = "chat_template_kwargs" if in_kwargs else "chat_template"
        raise bad_request(
            f"`{field}` cannot bring a template with a request: it would run on the server. Start"
            " the server with --chat-template.",
            field,
        )
    if request.continue_final_message and request.add_generation_prompt:
        raise bad_request(
            "`continue_final_message` and `add_generation_prompt` exclude each other: set"
            " `add_generation_prompt: false`.",
            "continue_final_message",
        )


@contextlib.contextmanager
def in_conversation(index: int) -> Generator[None]:
    """Refusals in here name the conversation of a batch."""
    try:
        yield
    except ApiError as error:
        message = f"Conversation {index}: {error.message}"
        raise ApiError(error.status, message, error.param, error.type_name) from error


def _media_of(index: int, request: ChatRequest) -> list[SentMedia]:
    """The media of a batch's conversation, named as parts of the batch."""
    return [
        item._replace(where=f"messages[{index}]{item.where.removeprefix('messages')}")
        for item in _media_in(request)
    ]


def _media_in(request: ChatRequest) -> list[SentMedia]:
    try:
        video_sound = wants_sound(request.mm_processor_kwargs)
    except RenderError as error:
        raise bad_request(f"{error.message}.", "mm_processor_kwargs") from error
    return media_parts(request.messages, video_sound=video_sound)


def _media_owner(request: ChatRequest, caller: Caller) -> MediaOwner:
    return MediaOwner(caller.key_id, caller.tenant, request.cache_salt or "")


def _check(request: ChatRequest) -> None:
    if request.top_logprobs and not request.logprobs:
        raise bad_request("`top_logprobs` needs `logprobs: true`.", "top_logprobs")
    if request.logprob_token_ids and not request.logprobs:
        raise bad_request("`logprob_token_ids` needs `logprobs: true`.", "logprob_token_ids")
    if request.prompt_logprobs is not None and request.stream:
        raise bad_request("`prompt_logprobs` cannot be streamed.", "prompt_logprobs")


def _parsed(pipeline: Pipeline, request: ChatRequest, choice: ToolChoice) -> ParserOptions:
    """What is read out of the model's output.

    Raises:
        ApiError: calls of tools would have to be, but their format is not known.
    """
    formats = pipeline.renderer.formats
    may_call = choice.mode != "none"
    if may_call and not formats.can_call:
        raise bad_request(
            "`tools` cannot be served: it is not known how this model writes calls. Start the"
            ' server with --tool-call-parser, or send `tool_choice: "none"`, with which the model'
            " is shown the tools and answers in text.",
            "tools",
        )
    content = request.messages[-1].get("content") if request.continue_final_message else None
    return ParserOptions(
        reasoning=True,
        tools=may_call,
        begins=formats.after_content(content) if isinstance(content, str) else None,
        answers_with_reasoning=formats.answers_with_reasoning(request.chat_template_kwargs),
        max_calls=1 if choice.is_single else 0,
        schemas=tool_schemas(request.tools) if may_call else {},
    )


def _template_variables(request: ChatRequest, read: frozenset[str]) -> dict[str, Any]:
    """Those of the request, and its other fields that a renderer is known to `read`."""
    variables = dict(request.chat_template_kwargs)
    if request.documents is not None:
        variables["documents"] = request.documents
    if request.reasoning_effort is not None:
        variables["reasoning_effort"] = request.reasoning_effort
    wanted = request.response_format or {}
    if RESPONSE_FORMAT in read and wanted.get("type") == "json_schema":
        variables[RESPONSE_FORMAT] = wanted.get("json_schema")
    return variables
