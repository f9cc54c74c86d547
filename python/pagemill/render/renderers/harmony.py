"""Harmony, the format of gpt-oss: messages with headers and channels.

Source: https://cookbook.openai.com/articles/openai-harmony. The model's reasoning is in the channel
"analysis", its calls and what it says before them in "commentary", its answer in "final". There are
no built-in tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.renderers.base import Chat, ResponseFormat, response_format
from pagemill.render.renderers.harmony_tools import namespace

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_CUTOFF = "2024-06"
_EFFORTS = ("low", "medium", "high")
_HEADERS = {"system", "developer"}


def write(chat: Chat) -> str:
    """Returns the prompt of `chat`.

    Raises:
      RenderError: the effort is unknown, or a tool's result belongs to no call.
    """
    messages = list(chat.messages)
    instructions: list[str] = []
    while messages and messages[0]["role"] in _HEADERS:
        instructions.append(messages.pop(0)["content"])
    parts = [_message("system", _system(chat))]
    wanted = _answers(response_format(chat.variables))
    if (text := _developer("\n\n".join(filter(None, instructions)), chat.tools, wanted)) != "":
        parts.append(_message("developer", text))
    parts += _turns(messages)
    if chat.add_generation_prompt:
        parts.append("<|start|>assistant")
    return "".join(parts)


def _system(chat: Chat) -> str:
    effort = chat.variables.get("reasoning_effort", "medium")
    if effort not in _EFFORTS:
        raise RenderError(
            f"this model's reasoning effort is one of {', '.join(_EFFORTS)}", "reasoning_effort"
        )
    identity = chat.variables.get("model_identity", _IDENTITY)
    if not isinstance(identity, str):
        raise RenderError("model_identity must be text", "chat_template_kwargs")
    lines = [
        identity,
        f"Knowledge cutoff: {_CUTOFF}",
        f"Current date: {date.today().isoformat()}",
        "",
        f"Reasoning: {effort}",
        "",
        "# Valid channels: analysis, commentary, final. Channel must be included for every"
        " message.",
    ]
    if chat.tools:
        lines.append("Calls to these tools must go to the commentary channel: 'functions'.")
    return "\n".join(lines)


def _developer(instructions: str, tools: Sequence[Mapping[str, Any]], wanted: str = "") -> str:
    sections = [f"# Instructions\n\n{instructions}"] if instructions else []
    if tools:
        sections.append(namespace(tools))
    return "\n\n".join([*sections, wanted] if wanted else sections)


def _answers(wanted: ResponseFormat | None) -> str:
    """The section that says what an answer has to be."""
    if wanted is None:
        return ""
    about = "".join(f"// {line}\n" for line in wanted.description.splitlines())
    return f"# Response Formats\n\n## {wanted.name}\n\n{about}{wanted.schema}"


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # Reasoning is shown until it has led to an answer.
    answers = [n for n, message in enumerate(messages) if _is_answer(message)]
    answered = answers[-1] if answers else -1
    names: dict[Any, str] = {}
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "assistant":
            yield from _assistant(message, names, shows_reasoning=number > answered)
        elif role == "tool":
            sender = f"functions.{_caller(message, names)} to=assistant"
            yield _message(f"{sender}<|channel|>commentary", content)
        elif role in _HEADERS:
            yield _message("developer", _developer(content, ()))
        else:
            yield _message(role, content)


def _is_answer(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _assistant(
    message: Mapping[str, Any], names: dict[Any, str], *, shows_reasoning: bool
) -> Iterator[str]:
    reasoning = message.get("reasoning")
    if shows_reasoning and isinstance(reasoning, str) and reasoning:
        yield _message("assistant<|channel|>analysis", reasoning)
    if _is_answer(message):
        yield _message("assistant<|channel|>final", message["content"])
        return
    if message["content"]:
        yield _message("assistant<|channel|>commentary", message["content"])
    names.clear()
    for call in as_array(message["tool_calls"]) or []:
        fields = as_object(call) or {}
        function = as_object(fields.get("function")) or {}
        name = str(function.get("name"))
        names[fields.get("id")] = name
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else _json(arguments)
        header = f"assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
        yield f"<|start|>{header}<|message|>{text}<|call|>"


def _caller(message: Mapping[str, Any], names: Mapping[Any, str]) -> str:
    found = names.get(message.get("tool_call_id"), message.get("name"))
    if not isinstance(found, str):
        raise RenderError(
            "a tool's result belongs to no call of the message before it: its tool_call_id is"
            " unknown",
            "messages",
        )
    return found


def _message(header: str, text: str) -> str:
    return f"<|start|>{header}<|message|>{text}<|end|>"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # as the model writes it
