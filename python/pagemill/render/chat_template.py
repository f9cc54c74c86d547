"""Messages to prompt text, by the model's own Jinja template.

A template is a program that came with a model: it may loop for ever or fill the memory. It runs in
Jinja's immutable sandbox, in a process of its own with hard limits (`template_worker`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagemill.render.chat_messages import MEDIA_MARKS, Message, prepared
from pagemill.render.control_text import ControlText
from pagemill.render.errors import RenderError
from pagemill.render.tool_prompt import knows_tools, with_tools

MAX_OUTPUT_CHARS = 2**24
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message"})
# Roles of the HTTP contract; a template that has others compares the role with their names.
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class ChatTemplate:
    """One compiled template."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        content_format: str = "auto",
        media_texts: Mapping[str, str] | None = None,
    ) -> None:
        """Compiles `source`.

        Args:
          source: Jinja, as Hugging Face's templates are written.
          special_tokens: variables such as `bos_token`.
          content_format: see `template_wire.Setup`.
          media_texts: likewise.

        Raises:
          RenderError: `source` is not a template.
        """
        environment = _Environment()
        self._functions: frozenset[str] = frozenset(environment.globals)
        self._knows_tools = knows_tools(source)
        self._special_tokens = dict(special_tokens)
        self._media_texts = {MEDIA_MARKS[kind]: text for kind, text in (media_texts or {}).items()}
        try:
            tree = environment.parse(source)
            finds_parts = content_format == "auto" and _loops_over_content(tree)
            self._takes_parts = finds_parts or content_format == "openai"
            self._takes_null = _compares_content_with_none(tree)
            self.roles = _ROLES | set(_role_names(tree))
            self._reads = meta.find_undeclared_variables(tree)  # folds the tree's constants
            self._template = environment.from_string(tree)
        except jinja2.TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message}"
            raise RenderError(f"the chat template is not valid Jinja: {where}") from None
        except RecursionError:
            raise RenderError("the chat template is nested too deep") from None

    def prepared(self, message: Message) -> dict[str, Any]:
        """Returns `message` in the form that this template is written for.

        Raises:
          RenderError: its role is unknown, or a content part is not text.
        """
        role = message.get("role")
        if not isinstance(role, str):
            raise RenderError("a message has no role", "messages")
        if role not in self.roles:
            raise RenderError(
                f"unknown role {role[:40]!r}; this model's chat template knows"
                f" {', '.join(sorted(self.roles))}",
                "messages",
            )
        return prepared(
            message,
            takes_parts=self._takes_parts,
            takes_null=self._takes_null,
            marks=frozenset(self._media_texts),
        )

    def split_variables(self, variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Returns the `variables` that the template reads, and the names of the others.

        Raises:
          RenderError: one may not be set, or documents are given that would not be read.
        """
        clash = sorted((_RESERVED | set(self._functions)) & set(variables))
        if clash:
            raise RenderError(
                f"chat_template_kwargs may not set {', '.join(clash)}", "chat_template_kwargs"
            )
        read = {name: value for name, value in variables.items() if name in self._reads}
        if variables.get("documents") and "documents" not in read:
            raise RenderError("this model's chat template takes no documents", "documents")
        return read, sorted(set(variables) - set(read) - {"documents"})

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
        control: ControlText | None = None,
    ) -> str:
        """Returns the prompt.

        Args:
          messages: as `prepared` returns them.
          tools: definitions of functions; in the system message if the template knows none.
          add_generation_prompt: end with the header of the assistant's message.
          variables: further variables of the template, as `split_variables` returns them.
          control: marks what users wrote, if control tokens in it are to stay plain text.

        Raises:
          RenderError: the template refuses the messages, or fails.
        """
        if not self._knows_tools:
            messages, tools = with_tools(messages, tools), None
        written: dict[str, Any] = {
            **variables,
            "messages": list(messages),
            "tools": list(tools) if tools else None,
        }
        if control is not None:
            written = control.marked(written)
        context = {
            "documents": None,
            **self._special_tokens,
            **written,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            prompt = _joined(self._template.generate(context))
        except RenderError:
            raise
        except Exception as error:
            # Whatever a template does wrong with these messages is the request's failure.
            raise RenderError(f"the chat template failed: {reason(error)}", "messages") from error
        for mark, text in self._media_texts.items():
            prompt = prompt.replace(mark, text)
        return prompt


def reason(error: Exception) -> str:
    """Returns the message for an error of a template."""
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    text = str(error).splitlines()[0][:500] if str(error) else ""
    if isinstance(error, jinja2.TemplateError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as Hugging Face's templates expect it."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
        )
        names: dict[str, Any] = self.globals
        names |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.filters["tojson"] = _to_json


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model said, for training; a no-op."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Returns the block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _joined(parts: Iterator[str]) -> str:
    kept: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_OUTPUT_CHARS:
            raise RenderError(
                f"the prompt is longer than {MAX_OUTPUT_CHARS} characters", "messages"
            )
        kept.append(part)
    return "".join(kept)


def _names(node: nodes.Node, field: str) -> bool:
    """True if `node` is a variable, an attribute or a key of that name."""
    if isinstance(node, nodes.Name):
        return node.name == field
    if isinstance(node, nodes.Getattr):
        return node.attr == field
    key = node.arg if isinstance(node, nodes.Getitem) else None
    return isinstance(key, nodes.Const) and key.value == field


def _loops_over_content(tree: nodes.Template) -> bool:
    # `for part in message.content`, perhaps behind filters or another name.
    aliases = {"content"}
    for assign in tree.find_all(nodes.Assign):
        target = assign.target
        if isinstance(target, nodes.Name) and _names(assign.node, "content"):
            aliases.add(target.name)
    for loop in tree.find_all(nodes.For):
        source = loop.iter
        while isinstance(source, nodes.Filter) and source.node is not None:
            source = source.node
        if any(_names(source, name) for name in aliases):
            return True
    return False


def _compares_content_with_none(tree: nodes.Template) -> bool:
    if any(t.name == "none" and _names(t.node, "content") for t in tree.find_all(nodes.Test)):
        return True
    return any(
        _names(comparison.expr, "content")
        and isinstance(operand.expr, nodes.Const)
        and operand.expr.value is None
        for comparison in tree.find_all(nodes.Compare)
        for operand in comparison.ops
    )


def _role_names(tree: nodes.Template) -> Iterator[str]:
    # `message.role == "x"`, `"x" == message["role"]`, `role in ["x", "y"]`, and by a filter.
    for comparison in tree.find_all(nodes.Compare):
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        others = [side for side in sides if not _names(side, "role")]
        if len(others) < len(sides):
            for side in others:
                for constant in [side, *side.find_all(nodes.Const)]:
                    if isinstance(constant, nodes.Const) and isinstance(constant.value, str):
                        yield constant.value
    for chosen in tree.find_all(nodes.Filter):  # messages | selectattr("role", "equalto", "x")
        if chosen.name == "selectattr":
            values = [arg.value for arg in chosen.args if isinstance(arg, nodes.Const)]
            if len(values) == 3 and values[0] == "role" and isinstance(values[2], str):
                yield values[2]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own would escape for HTML.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
