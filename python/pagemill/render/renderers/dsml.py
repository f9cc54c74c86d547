"""DSML, the elements in which DeepSeek's models from V3.2 on write calls of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.renderers.base import response_format

BEGIN = "<｜begin▁of▁sentence｜>"
END = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
_SIGIL = "｜DSML｜"


@dataclass(frozen=True, slots=True)
class Dsml:
    """One dialect: the element around calls, and what is between the sigil and each name."""

    block: str
    space: str = ""

    def tag(self, name: str) -> str:
        """An element's name, as it is written."""
        return f"{_SIGIL}{self.space}{name}"

    def calls(self, message: Mapping[str, Any]) -> str:
        """The calls of the assistant's `message`, behind its content; "" without any."""
        calls = as_array(message.get("tool_calls"))
        if not calls:
            return ""
        block, invokes = self.tag(self.block), "\n".join(map(self._call, calls))
        return f"\n\n<{block}>\n{invokes}\n</{block}>"

    def example(self, tool: str, parameter: str) -> str:
        """How calls are written, as prompts show it; in capitals what a model fills in."""
        block, invoke, key = self.tag(self.block), self.tag("invoke"), self.tag("parameter")
        return (
            f'<{block}>\n<{invoke} name="${tool}">\n'
            f'<{key} name="${parameter}_NAME" string="true|false">${parameter}_VALUE</{key}>\n'
            f'...\n</{invoke}>\n<{invoke} name="${tool}2">\n...\n</{invoke}>\n</{block}>'
        )

    def _call(self, call: Any) -> str:
        function = as_object((as_object(call) or {}).get("function")) or {}
        arguments = function.get("arguments")
        fields = as_object(arguments)
        if fields is None:  # a model's own malformed call, replayed
            fields = {"arguments": arguments} if arguments else {}
        lines = [self._parameter(name, value) for name, value in fields.items()]
        invoke = self.tag("invoke")
        return "\n".join([f'<{invoke} name="{function.get("name")}">', *lines, f"</{invoke}>"])

    def _parameter(self, name: str, value: Any) -> str:
        is_text = isinstance(value, str)
        text = value if is_text else _json(value)
        flag = "true" if is_text else "false"
        parameter = self.tag("parameter")
        return f'<{parameter} name="{name}" string="{flag}">{text}</{parameter}>'


def definitions(tools: Sequence[Mapping[str, Any]]) -> str:
    """The functions of `tools`, one JSON object a line."""
    return "\n".join(_json(as_object(tool.get("function")) or tool) for tool in tools)


def answers(variables: Mapping[str, Any]) -> str:
    """What follows the system message if answers have to be of a JSON Schema; "" if not.

    Raises:
      RenderError: the format of answers has no schema.
    """
    wanted = response_format(variables)
    if wanted is None:
        return ""
    return (
        "\n\n## Response Format:\n\n"
        f"You MUST strictly adhere to the following schema to reply:\n{wanted.schema}"
    )


def thinks(variables: Mapping[str, Any], *, default: bool) -> bool:
    """Whether the switches `thinking` and `enable_thinking` are on; `default` without them.

    Raises:
      RenderError: one is not true or false, or they differ.
    """
    names = ("enable_thinking", "thinking")
    given = {name: variables[name] for name in names if name in variables}
    if not all(isinstance(value, bool) for value in given.values()) or len({*given.values()}) > 1:
        raise RenderError(
            f"{' and '.join(given)} must be true or false, and the same", "chat_template_kwargs"
        )
    return any(given.values()) if given else default


def last_user(messages: Sequence[Mapping[str, Any]], roles: frozenset[str]) -> int:
    """The place of the last message whose role is one of `roles`; -1 if there is none."""
    found = [at for at, message in enumerate(messages) if message["role"] in roles]
    return found[-1] if found else -1


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
