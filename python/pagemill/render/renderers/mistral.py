"""Chats of Mistral's models, written by the library of their authors.

The library makes token ids, not text: in what users write there is no control token for it. Its
package is imported when the first model in this mode is opened.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagemill.render.chat_messages import part_texts
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.mistral_vocabulary import mistral_file
from pagemill.render.renderers.base import ROLES
from pagemill.render.template_wire import RenderReply, RenderRequest
from pagemill.render.tokenizer import MAX_TEXT_CHARS

_CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHABET = string.ascii_letters + string.digits
_FIRST_THINKING_VERSION = 13
_SYSTEM_ROLES = {"developer": "system"}


class MistralChats:
    """Renders the chats of the model in a folder. Implements `base.ChatRenderer`."""

    def __init__(self, folder: Path) -> None:
        """Reads the tokenizer's file in `folder`.

        Raises:
          RenderError: the library is missing, or cannot read the file.
        """
        file = mistral_file(folder)
        try:
            mistral = importlib.import_module("mistral_common.tokens.tokenizers.mistral")
            requests = importlib.import_module("mistral_common.protocol.instruct.request")
        except ImportError as error:
            raise RenderError(
                "--tokenizer-mode mistral needs mistral-common: pip install 'pagemill[mistral]'"
            ) from error
        try:
            self._tokenizer: Any = mistral.MistralTokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001  the library raises what its parsers raise
            raise RenderError(f"{file} cannot be read by mistral-common: {error!r}") from None
        self._request: Any = requests.ChatCompletionRequest
        version: Any = self._tokenizer.version
        self._thinks = int(str(version.value).lstrip("v")) >= _FIRST_THINKING_VERSION

    def render(self, request: RenderRequest) -> RenderReply:
        """Returns the prompt of `request`; see `ChatRenderer.render`."""
        if request.variables.get("documents"):
            raise RenderError("this model's chat format takes no documents", "documents")
        messages = [self._message(message) for message in request.messages]
        _check_size(messages, request.tools)
        try:
            chat = self._request.from_openai(
                messages,
                [_tool(tool) for tool in request.tools] if request.tools else None,
                continue_final_message=request.continue_final_message,
            )
            written: Any = self._tokenizer.encode_chat_completion(chat)
        except RecursionError:
            raise RenderError("the messages are nested too deep", "messages") from None
        except Exception as error:  # noqa: BLE001  its own exceptions, pydantic's, assertions
            raise RenderError(_sentence(error), "messages") from None
        ignored = sorted(set(request.variables) - {"documents"})
        return RenderReply(written.text, ignored=ignored, token_ids=list(written.tokens))

    def close(self) -> None:
        """Nothing runs."""

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message in the terms of the library."""
        role = message.get("role")
        if role not in ROLES:
            raise RenderError(f"a message has no role of {', '.join(ROLES)}", "messages")
        content = _content(message.get("content"))
        if role == "tool":
            found = {"tool_call_id": _call_id(message.get("tool_call_id")), "content": content}
            name = message.get("name")
            return {"role": role, **found, **({"name": name} if isinstance(name, str) else {})}
        if role != "assistant":
            return {"role": _SYSTEM_ROLES.get(role, role), "content": content}
        calls = [_call(call) for call in as_array(message.get("tool_calls")) or ()]
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        if self._thinks and isinstance(reasoning, str) and reasoning:
            thought = {"type": "thinking", "thinking": reasoning, "closed": True}
            content = [thought, *_parts(content)]
        return {"role": role, "content": content or None, "tool_calls": calls or None}


def _content(content: Any) -> str | list[dict[str, Any]]:
    """Text, or parts of text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = as_array(content)
    if parts is None:
        raise RenderError("the content of a message is not text", "messages")
    return [{"type": "text", "text": text} for text in part_texts(parts)]


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _call(call: Any) -> dict[str, Any]:
    fields = as_object(call) or {}
    function = as_object(fields.get("function")) or {}
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    written = {"name": str(function.get("name")), "arguments": text}
    return {"id": _call_id(fields.get("id")), "type": "function", "function": written}


def _call_id(given: Any) -> str:
    """An id as these models write them. One of another form, as a client or another model made it,
    becomes the same for a call and for its result."""
    if isinstance(given, str) and _CALL_ID.fullmatch(given):
        return given
    number = int.from_bytes(hashlib.blake2b(str(given).encode("utf-8", "replace")).digest()[:8])
    return "".join(_ALPHABET[number // len(_ALPHABET) ** at % len(_ALPHABET)] for at in range(9))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A definition, without what the library does not know."""
    function = as_object(tool.get("function")) or tool
    known = ("name", "description", "parameters", "strict")
    fields = {name: function[name] for name in known if function.get(name) is not None}
    return {"type": "function", "function": {"parameters": {}, **fields}}


def _check_size(messages: list[dict[str, Any]], tools: Any) -> None:
    """Refuses what is too long to be tokenized."""
    length = len(json.dumps([messages, tools], ensure_ascii=False))
    if length > MAX_TEXT_CHARS:
        raise RenderError(
            f"the messages have {length} characters; at most {MAX_TEXT_CHARS} are taken", "messages"
        )


def _sentence(error: Exception) -> str:
    """Why the library refuses the messages."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"mistral-common refuses the messages: {text[:400]}"
