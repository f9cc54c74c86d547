"""A request of Cohere's API of chats as a chat request."""

from __future__ import annotations

from typing import Any

import msgspec

from pagemill.server.protocol.chat import ChatRequest, check_tools
from pagemill.server.protocol.cohere_chat import (
    AssistantMessage,
    ChatMessage,
    CohereChatRequest,
    Document,
    DocumentContent,
    ImageContent,
    ResponseFormat,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolMessage,
    UserMessage,
)

FIELD_NAMES = {
    "stop": "stop_sequences",
    "top_k": "k",
    "top_p": "p",
    "thinking_token_budget": "thinking.token_budget",
}
"""Fields of `ChatRequest` that have another name here."""
_CHOICES = {"REQUIRED": "required", "NONE": "none"}


def chat_request(body: CohereChatRequest, *, bounds_thinking: bool) -> ChatRequest:
    """The chat request with the same prompt and output.

    `bounds_thinking`: the model's thinking can have a bound.

    Raises:
        ApiError: 400 naming the tool that is none.
    """
    check_tools(body.tools)
    thinking = body.thinking
    budget = thinking.token_budget if thinking is not None and bounds_thinking else None
    return ChatRequest(
        model=body.model,
        messages=[_message(message) for message in body.messages],
        stream=body.stream,
        tools=[_tool(tool, body.strict_tools) for tool in body.tools],
        tool_choice=_CHOICES[body.tool_choice] if body.tool_choice else None,
        documents=[_document(document) for document in body.documents] or None,
        response_format=_format(body.response_format),
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        temperature=body.temperature,
        seed=body.seed,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        top_k=body.k,
        top_p=body.p,
        logprobs=body.logprobs,
        thinking_token_budget=budget,
        watermarking=body.watermarking,
        priority=body.priority,
        cache_salt=body.cache_salt,
        timeout=body.timeout,
        kv_transfer_params=body.kv_transfer_params,
        request_id=body.request_id,
        chat_template_kwargs={**_variables(body), **body.chat_template_kwargs},
    )


def _variables(body: CohereChatRequest) -> dict[str, Any]:
    """Variables of the template: the switch of thinking, by both names that templates have for it,
    and the mode that those of Cohere's models read."""
    variables: dict[str, Any] = {}
    if body.thinking is not None:
        thinks = body.thinking.type == "enabled"
        variables |= {"enable_thinking": thinks, "thinking": thinks}
    if body.safety_mode is not None:
        variables["safety_mode"] = body.safety_mode
    return variables


def _format(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.json_schema is None:
        return {"type": "json_object"}
    schema = {"name": "output", "schema": wanted.json_schema}
    return {"type": "json_schema", "json_schema": schema}


def _tool(tool: dict[str, Any], strict: bool) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": True}} if strict else tool


def _document(document: str | Document) -> dict[str, Any]:
    """A document as chat templates take it: names and values."""
    if isinstance(document, str):
        return {"text": document}
    fields = {"text": document.data} if isinstance(document.data, str) else document.data
    return fields if document.id is None else {**fields, "id": document.id}


def _message(message: ChatMessage) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "content": _text(message.content)}
        case UserMessage():
            return {"role": "user", "content": _user_content(message)}
        case ToolMessage():
            content = message.content
            texts = [content] if isinstance(content, str) else [_result(part) for part in content]
            return {
                "role": "tool",
                "tool_call_id": message.tool_call_id,
                "content": "\n".join(texts),
            }
        case AssistantMessage():
            return _assistant(message)


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    content = message.content if message.content is not None else ""
    parts = [TextContent(content)] if isinstance(content, str) else content
    text = _text([part for part in parts if isinstance(part, TextContent)])
    thoughts = [part.thinking for part in parts if isinstance(part, ThinkingContent)]
    written: dict[str, Any] = {"role": "assistant", "content": text}
    if message.tool_plan:
        written["tool_plan"] = message.tool_plan  # templates of Cohere's models read it
        thoughts = thoughts or [message.tool_plan]
    if thoughts:
        written["reasoning"] = "\n".join(thoughts)
    if message.tool_calls:
        written["content"] = text or None
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return written


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    return [
        {"type": "image_url", "image_url": {"url": part.image_url.url}}
        if isinstance(part, ImageContent)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


def _result(part: TextContent | DocumentContent) -> str:
    """A part of a tool's result as text; that of a document is JSON."""
    if isinstance(part, TextContent):
        return part.text
    return msgspec.json.encode(_document(part.document)).decode()


def _text(content: str | list[TextContent]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
