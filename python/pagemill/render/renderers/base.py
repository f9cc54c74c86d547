"""What every renderer of chats is, and what those have in common that write text themselves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from pagemill.render.chat_messages import cut_to_continue, prepared
from pagemill.render.control_text import ControlText
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_object
from pagemill.render.template_wire import RenderReply, RenderRequest

_LOG = logging.getLogger(__name__)
ROLES = ("system", "developer", "user", "assistant", "tool")


class ChatRenderer(Protocol):
    """Messages to the text of a prompt. Thread-safe."""

    def render(self, request: RenderRequest) -> RenderReply:
        """Returns a reply that holds no error.

        A control token in a message must stay plain text, unless the request trusts it.

        Raises:
          RenderError: the messages cannot be rendered.
        """
        ...

    def close(self) -> None:
        """Ends what the renderer runs. Idempotent."""
        ...


class Chat(NamedTuple):
    """What a `Writer` is given.

    `messages` are as `chat_messages.prepared` returns them, with contents that are texts.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool
    variables: Mapping[str, Any]


Writer = Callable[[Chat], str]
RESPONSE_FORMAT = "response_format"
"""The variable that holds the request's field of this name if it is a JSON Schema."""


class ResponseFormat(NamedTuple):
    """What an answer has to be. `schema` is JSON text."""

    name: str
    description: str
    schema: str


def response_format(variables: Mapping[str, Any]) -> ResponseFormat | None:
    """The format of answers that a chat's `variables` say, if they say one.

    Raises:
      RenderError: it has no schema.
    """
    value = variables.get(RESPONSE_FORMAT)
    if value is None:
        return None
    fields = as_object(value) or {}
    schema = fields.get("schema")
    if not isinstance(schema, Mapping | bool):
        raise RenderError(f"{RESPONSE_FORMAT} has no schema", "chat_template_kwargs")
    name, description = (fields.get(key) for key in ("name", "description"))
    return ResponseFormat(
        name if isinstance(name, str) else "answer",
        description if isinstance(description, str) else "",
        json.dumps(schema, ensure_ascii=False),
    )


class TextRenderer:
    """A renderer whose format is a function of this program, with control tokens as text."""

    def __init__(
        self, write: Writer, variables: frozenset[str], control_tokens: Sequence[str]
    ) -> None:
        """Joins the parts.

        Args:
          write: writes the prompt; raises `RenderError` for messages that it cannot write.
          variables: the `chat_template_kwargs` that it reads.
          control_tokens: the vocabulary's.
        """
        self._write = write
        self._variables = variables
        self._control = ControlText(control_tokens)

    def render(self, request: RenderRequest) -> RenderReply:
        """Returns the prompt of `request`; see `ChatRenderer.render`."""
        if request.variables.get("documents"):
            raise RenderError("this model's chat format takes no documents", "documents")
        known = {name: v for name, v in request.variables.items() if name in self._variables}
        control = None if request.trust_control_tokens else self._control
        messages = [_prepared(message) for message in request.messages]
        written: dict[str, Any] = {
            "messages": messages,
            "tools": [dict(tool) for tool in request.tools or ()],
            "variables": known,
        }
        if control is not None:
            written = cast(dict[str, Any], control.marked(written))
        chat = Chat(**written, add_generation_prompt=request.add_generation_prompt)
        try:
            prompt = self._write(chat)
        except RecursionError:
            raise RenderError("the messages are nested too deep", "messages") from None
        ignored = sorted(set(request.variables) - self._variables - {"documents"})
        return finished(prompt, request, messages[-1].get("content"), control, ignored)

    def close(self) -> None:
        """Nothing runs."""


def finished(
    prompt: str,
    request: RenderRequest,
    last_content: Any,
    control: ControlText | None,
    ignored: list[str],
) -> RenderReply:
    """Returns the reply that carries `prompt`.

    Args:
      prompt: of text that `control` has marked.
      request: what is rendered.
      last_content: of the last message, unmarked.
      control: None if control tokens in messages count.
      ignored: variables of the request that were not read.

    Raises:
      RenderError: the last message cannot be continued, or users' text holds a stand-in.
    """
    if request.continue_final_message:
        marked = last_content if control is None else control.marked(last_content)
        prompt = cut_to_continue(prompt, marked)
    respelt = None if control is None else control.with_stand_ins(prompt)
    if respelt is None:
        return RenderReply(prompt, ignored=ignored)
    return RenderReply(respelt, True, ignored=ignored)


class IgnoredVariables:
    """Says once that requests set variables that the renderer does not read."""

    def __init__(self) -> None:
        self._said = False

    def note(self, names: Sequence[str]) -> None:
        """Logs a warning for the first request with such `names`."""
        if names and not self._said:
            self._said = True
            _LOG.warning(
                "chat_template_kwargs that this model's chat template does not read are ignored,"
                " such as %s; this is said once",
                ascii(names[0][:40]),
            )


def _prepared(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        what = f"unknown role {role[:40]!r}" if isinstance(role, str) else "a message has no role"
        raise RenderError(f"{what}; this model's chat format knows {', '.join(ROLES)}", "messages")
    fields = prepared(message, takes_parts=False, takes_null=False)
    if not isinstance(fields["content"], str):
        raise RenderError("the content of a message is not text", "messages")
    return fields
