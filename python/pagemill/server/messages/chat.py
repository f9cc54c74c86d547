"""A request of Anthropic's Messages API as a chat request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pagemill.server import errors
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.messages import (
    ContentBlock,
    CountTokensRequest,
    DocumentBlock,
    ImageBlock,
    InputMessage,
    MessagesRequest,
    RedactedThinkingBlock,
    TextBlock,
    Thinking,
    ThinkingBlock,
    Tool,
    ToolChoice,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)

# A line that some clients put before their system prompt, different in each request: no instruction
# for the model, and no prompt that begins with it is found in the prefix cache again.
_BILLING_HEADER = "x-anthropic-billing-header:"
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FIELD_NAMES = {
    "response_format": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
"""Fields of `ChatRequest` that have another name here."""


class _Located(NamedTuple):
    """A block, and its place in the request."""

    block: ContentBlock
    where: str


def chat_request(body: CountTokensRequest, *, bounds_thinking: bool = False) -> ChatRequest:
    """The chat request with the same prompt, and for a `MessagesRequest` the same output. Documents
    are text (`TextFiles.in_documents`).

    `bounds_thinking`: the model's thinking can have a bound.

    Raises:
        ApiError: 400 naming what cannot be given to this model.
    """
    messages = _messages(body)
    last = messages[-1]
    continues = last["role"] == "assistant" and bool((last["content"] or "").strip())
    choice = body.tool_choice
    config = body.output_config
    fields: dict[str, Any] = {}
    if isinstance(body, MessagesRequest):
        if last["role"] == "assistant" and (last.get("tool_calls") or not continues):
            raise bad_request(
                "`messages` ends with an assistant's message that cannot be continued: it has no"
                " text, or calls tools. Send the tools' results, or another message.",
                "messages",
            )
        fields = _generation_fields(body)
        if bounds_thinking and body.thinking is not None and body.thinking.type == "enabled":
            fields["thinking_token_budget"] = body.thinking.budget_tokens
    if config is not None and config.format is not None:
        schema = {"name": "output", "schema": config.format.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    return ChatRequest(
        **fields,
        model=body.model,
        messages=messages,
        add_generation_prompt=last["role"] != "assistant",
        continue_final_message=continues and not last.get("tool_calls"),
        tools=[_function(tool, at) for at, tool in enumerate(body.tools)],
        tool_choice=None if choice is None else _choice(choice),
        parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        reasoning_effort=None if config is None else config.effort,
        chat_template_kwargs={**_switches(body.thinking), **body.chat_template_kwargs},
    )


def renamed(error: ApiError) -> ApiError:
    """A refusal of a chat request, with the names that its fields have here."""
    return errors.renamed(error, _FIELD_NAMES)


def _generation_fields(body: MessagesRequest) -> dict[str, Any]:
    return {
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "stream": body.stream,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "watermarking": body.watermarking,
        "vllm_xargs": body.vllm_xargs,
        "cache_salt": body.cache_salt,
        "timeout": body.timeout,
        "kv_transfer_params": body.kv_transfer_params,
        "request_id": body.request_id,
    }


def _switches(thinking: Thinking | None) -> dict[str, Any]:
    """The template's variable that switches thinking, by both names that templates have for it."""
    if thinking is None:
        return {}
    thinks = thinking.type != "disabled"
    return {"enable_thinking": thinks, "thinking": thinks}


def _function(tool: Tool, at: int) -> dict[str, Any]:
    if tool.input_schema is None:
        kind = (tool.type or "custom")[:40]
        raise bad_request(
            f"`tools[{at}].input_schema` is required; this server defines no tools of type"
            f" {kind!r} itself.",
            "tools",
        )
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.type != "tool":
        return _CHOICES[choice.type]
    if not choice.name:
        raise bad_request("`tool_choice.name` must name a tool.", "tool_choice")
    return {"type": "function", "function": {"name": choice.name}}


def _messages(body: CountTokensRequest) -> list[dict[str, Any]]:
    """The chat's messages. Those of one role in a row are joined: templates want roles to
    alternate."""
    named = [(f"messages[{at}]", message) for at, message in enumerate(body.messages)]
    if body.system:
        content: str | list[ContentBlock] = (
            body.system if isinstance(body.system, str) else [*body.system]
        )
        named.insert(0, ("system", InputMessage("system", content)))
    written: list[dict[str, Any]] = []
    for role, group in groupby(named, lambda each: each[1].role):
        turn = [located for name, message in group for located in _located(name, message)]
        if role == "assistant":
            written.append(_assistant(turn))
        else:
            written += _other(role, turn)
    if not written:
        raise bad_request("`messages` has no text.", "messages")
    return written


def _located(name: str, message: InputMessage) -> Iterator[_Located]:
    if isinstance(message.content, str):
        yield _Located(TextBlock(message.content), f"{name}.content")
        return
    for at, block in enumerate(message.content):
        yield _Located(block, f"{name}.content[{at}]")


def _assistant(turn: Sequence[_Located]) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block, where in turn:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            case RedactedThinkingBlock():
                pass
            case _:
                raise _misplaced(block, where, "assistant")
    content = "".join(texts)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content or None if calls else content,
    }
    if any(thoughts):
        message["reasoning"] = "\n".join(filter(None, thoughts))
    if calls:
        message["tool_calls"] = calls
    return message


def _other(role: str, turn: Sequence[_Located]) -> list[dict[str, Any]]:
    """Results of tools, which templates want right behind the calls, and then the texts."""
    parts: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for block, where in turn:
        match block:
            case DocumentBlock() if role == "user":
                parts.append(_text(_document(block, where)))
            case ImageBlock() if role == "user":
                parts.append(_image(block, where))
            case TextBlock():
                if block.text and not (role == "system" and block.text.startswith(_BILLING_HEADER)):
                    parts.append(_text(block.text))
            case ToolResultBlock() if role == "user":
                content = _result(block, where)
                results.append(
                    {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
                )
            case _:
                raise _misplaced(block, where, role)
    if parts or (role == "user" and not results):
        is_text = len(parts) == 1 and parts[0]["type"] == "text"
        content = parts[0]["text"] if is_text else parts or ""
        results.append({"role": role, "content": content})
    return results


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(image: ImageBlock, where: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": _url(image, where)}}


def _url(image: ImageBlock, where: str) -> str:
    source = image.source
    if source.type == "base64" and source.data:
        return f"data:{source.media_type};base64,{source.data}"
    if source.type == "url" and source.url:
        return source.url
    raise bad_request(
        f"`{where}.source` must be of type `base64` with `data`, or `url` with `url`.", "messages"
    )


def _result(result: ToolResultBlock, where: str) -> str | list[dict[str, Any]]:
    """The text of a result, or parts if it has images, which follow its text. Chat templates know
    no errors, so the text says that it is one."""
    images: list[dict[str, Any]] = []
    if isinstance(result.content, str):
        text = result.content
    else:
        texts: list[str] = []
        for at, block in enumerate(result.content or ()):
            place = f"{where}.content[{at}]"
            match block:
                case TextBlock():
                    texts.append(block.text)
                case DocumentBlock():
                    texts.append(_document(block, place))
                case ToolReferenceBlock():
                    texts.append(f"Tool found: {block.tool_name}")
                case ImageBlock():
                    images.append(_image(block, place))
        text = "\n".join(texts)
    if result.is_error:
        text = f"Error: {text}"
    if not images:
        return text
    return [_text(text), *images] if text else images


def _document(document: DocumentBlock, where: str) -> str:
    """The text of a document, below what is known about it."""
    source = document.source
    match source.type:
        case "text":
            text = source.data
        case "content":
            found = source.content
            text = found if isinstance(found, str) else "\n".join(each.text for each in found)
        case _:
            raise bad_request(
                f"`{where}.source` is of type {source.type[:40]!r}; documents are of type `text`,"
                " `base64` (a file of text, or a PDF) or `content`: nothing is fetched.",
                "messages",
            )
    return "\n".join(filter(None, (document.title, document.context, text)))


def _misplaced(block: ContentBlock, where: str, role: str) -> ApiError:
    kind = block.__struct_config__.tag
    return bad_request(
        f"`{where}` is of type `{kind}`, which a message of role `{role}` cannot have.", "messages"
    )
