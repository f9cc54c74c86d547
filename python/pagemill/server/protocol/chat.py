"""Bodies of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagemill.render.chat_messages import TEXT_PARTS
from pagemill.server.errors import bad_request
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing, only
from pagemill.server.protocol.media import MEDIA_PARTS, check_media, media_kind
from pagemill.server.protocol.sampling import IGNORED, UNSUPPORTED, GenerationRequest, Positive
from pagemill.server.protocol.usage import Usage
from pagemill.server.records.timings import RequestTimings

_TOOLS = "send `tools` and `tool_choice`."


Messages = Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=16384)]


class ChatFields(GenerationRequest, kw_only=True, frozen=True):
    """The fields beside the messages."""

    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = 0
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    mm_processor_kwargs: dict[str, Any] = {}


class ChatRequest(ChatFields, kw_only=True, frozen=True):
    """The request. Messages keep every key they have, for the template to read."""

    messages: Messages


_MEDIA = "messages with media are not rendered."
RULES = FieldRules(
    unsupported={
        **{name: rule for name, rule in UNSUPPORTED.items() if name != "mm_processor_kwargs"},
        "functions": Unsupported(only([]), _TOOLS),
        "function_call": Unsupported(only("none", "auto"), _TOOLS),
        "modalities": Unsupported(only(["text"]), "the model writes text."),
        "audio": Unsupported(nothing, "the model writes text."),
        "web_search_options": Unsupported(nothing, "this server has no search."),
        "verbosity": Unsupported(only("medium"), "say in a message how long the answer should be."),
        "return_token_offsets": Unsupported(only(False), "renderings have token ids only."),
        "return_mm_kwargs": Unsupported(only(False), _MEDIA),
        "mm_payload": Unsupported(only("none"), _MEDIA),
        "return_prompt_text": Unsupported(only(False), "`return_token_ids` gives its ids."),
    },
    ignored=IGNORED | {"prediction"},
)


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Checks what templates take for granted: roles, and contents that are text.

    Raises:
        ApiError: 400 naming the message.
    """
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role:
            raise bad_request(f"`messages[{at}].role` must be a non-empty string.", "messages")
        if content is None and role != "assistant":
            raise bad_request(f"`messages[{at}].content` is required.", "messages")
        if isinstance(content, list):
            for number, part in enumerate(cast(list[Any], content)):
                _check_part(part, f"messages[{at}].content[{number}]")
        elif not isinstance(content, str | None):
            raise bad_request(
                f"`messages[{at}].content` must be a string or a list of parts, not"
                f" {type(content).__name__}.",
                "messages",
            )
        if message.get("tool_calls") is not None:
            _check_functions(message["tool_calls"], f"messages[{at}].tool_calls", "messages")


def check_tools(tools: list[dict[str, Any]]) -> None:
    """Checks that each of `tools` defines a function with a name.

    Raises:
        ApiError: 400 naming the tool.
    """
    _check_functions(tools, "tools", "tools")


def tool_schemas(tools: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """JSON Schema of the parameters of each of `tools`, which `check_tools` has seen, by its name;
    tools without one are missing."""
    functions = [tool["function"] for tool in tools]
    return {
        function["name"]: function["parameters"]
        for function in functions
        if isinstance(function.get("parameters"), dict)
    }


def _check_functions(items: Any, where: str, param: str) -> None:
    if not isinstance(items, list):
        raise bad_request(f"`{where}` must be a list.", param)
    for at, item in enumerate(cast(list[Any], items)):
        fields = cast(dict[str, Any], item) if isinstance(item, dict) else {}
        function = fields.get("function")
        name = cast(dict[str, Any], function).get("name") if isinstance(function, dict) else None
        if fields.get("type", "function") != "function" or not (isinstance(name, str) and name):
            raise bad_request(
                f"`{where}[{at}]` must be of type `function` and have a `function` with a `name`.",
                param,
            )


def _check_part(part: Any, where: str) -> None:
    if isinstance(part, str):
        return
    if not isinstance(part, dict):
        raise bad_request(f"`{where}` must be an object with a `type`.", "messages")
    fields = cast(dict[str, Any], part)
    kind = fields.get("type")
    field = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if media_kind(fields) is not None:
        check_media(fields, where, "messages")
        return
    if field is None:
        raise bad_request(
            f"`{where}.type` is {str(kind)[:40]!r}; parts are of type `text`, or of these for"
            f" models that take such media: {', '.join(MEDIA_PARTS)}.",
            "messages",
        )
    if not isinstance(fields.get(field), str):
        raise bad_request(f"`{where}.{field}` must be a string.", "messages")


class TopLogprob(msgspec.Struct):
    """One alternative at one position."""

    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(msgspec.Struct):
    """One generated token."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct):
    """`logprobs` of a choice."""

    content: list[ContentLogprob]


class CalledFunction(msgspec.Struct):
    """A call's function; `arguments` is JSON, as far as the model wrote such."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """A call of a tool."""

    id: str
    function: CalledFunction
    type: str = "function"


class ChatMessage(msgspec.Struct):
    """The message of a complete choice."""

    role: str
    content: str | None
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class PromptLogprob(msgspec.Struct):
    """One alternative for one prompt token."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ChatChoice(msgspec.Struct):
    """A complete choice."""

    index: int
    message: ChatMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET


class ChatResponse(msgspec.Struct):
    """A complete response."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"
    system_fingerprint: str = ""
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET
    kv_transfer_params: dict[str, str] | UnsetType = UNSET
    metrics: RequestTimings | UnsetType = UNSET


class FunctionDelta(msgspec.Struct):
    """What a chunk adds to a call's function."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class ToolCallDelta(msgspec.Struct):
    """What a chunk adds to call `index` of the message."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    """A choice's part of a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: str = "chat.completion.chunk"
    system_fingerprint: str = ""
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    kv_transfer_params: dict[str, str] | UnsetType = UNSET
    metrics: RequestTimings | UnsetType = UNSET
