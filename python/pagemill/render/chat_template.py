"""Messages to prompt text, by the model's own Jinja template.

A template is a program that came with a model. It runs in Jinja's immutable sandbox, and its time,
its output and the strings it multiplies are bounded.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

MAX_TEMPLATE_CHARS = 2**18
MAX_OUTPUT_CHARS = 2**24
MAX_RENDER_SECONDS = 5.0
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})

Message = Mapping[str, Any]


class ChatTemplate:
    """One compiled template. Thread-safe."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compiles `source`.

        Args:
          source: Jinja, as Hugging Face's templates are written.
          special_tokens: variables such as `bos_token`.

        Raises:
          RenderError: `source` is too long, or not a template.
        """
        if len(source) > MAX_TEMPLATE_CHARS:
            raise RenderError(
                f"the chat template has {len(source)} characters; at most {MAX_TEMPLATE_CHARS}"
                " are taken"
            )
        self._environment = _Environment()
        self._special_tokens = dict(special_tokens)
        try:
            tree = self._environment.parse(source)
            self.takes_content_parts = _loops_over_content(tree)
            for node in [*tree.find_all((nodes.For, nodes.Macro))]:
                node.body.insert(0, _tick_node())
            self._template = self._environment.from_string(tree)
        except jinja2.TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message}"
            raise RenderError(f"the chat template is not valid Jinja: {where}") from None
        except RecursionError:
            raise RenderError("the chat template is nested too deep") from None

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """Returns the prompt.

        Raises:
          RenderError: the template refuses the messages, fails, or takes too long.
        """
        clash = sorted(_RESERVED & set(variables))
        if clash:
            raise RenderError(
                f"chat_template_kwargs may not set {', '.join(clash)}", "chat_template_kwargs"
            )
        context: dict[str, Any] = {"documents": None, **self._special_tokens, **variables}
        context["messages"] = [self._prepared(message) for message in messages]
        context["tools"] = [dict(tool) for tool in tools] if tools else None
        context["add_generation_prompt"] = add_generation_prompt
        self._environment.start_clock()
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(context):
                size += len(part)
                if size > MAX_OUTPUT_CHARS:
                    raise RenderError(
                        f"the prompt is longer than {MAX_OUTPUT_CHARS} characters", "messages"
                    )
                parts.append(part)
        except RenderError:
            raise
        except Exception as error:
            # Whatever a template does wrong with these messages is the request's failure.
            raise RenderError(f"the chat template failed: {_reason(error)}", "messages") from error
        return "".join(parts)

    def _prepared(self, message: Message) -> dict[str, Any]:
        prepared = dict(message)
        parts = as_array(prepared.get("content"))
        if parts is not None and not self.takes_content_parts:
            prepared["content"] = joined_text(parts)
        calls = as_array(prepared.get("tool_calls"))
        if calls is not None:
            prepared["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
        return prepared


def joined_text(parts: Sequence[Any]) -> str:
    """Returns the text of content parts, one a line.

    Raises:
      RenderError: a part is not text.
    """
    texts: list[str] = []
    for part in parts:
        fields = as_object(part)
        text = part if isinstance(part, str) else None
        kind = type(part).__name__ if fields is None else fields.get("type")
        if fields is not None and kind in ("text", "input_text", "output_text"):
            text = fields.get("text")
        if not isinstance(text, str):
            raise RenderError(
                f"a content part of type {kind!r} cannot be given to this model; it takes text",
                "messages",
            )
        texts.append(text)
    return "\n".join(texts)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as Hugging Face's templates expect it, with a clock."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
        )
        self._clock = threading.local()  # renders run side by side in worker threads
        names: dict[str, Any] = self.globals
        names |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.filters["tojson"] = _to_json

    def start_clock(self) -> None:
        """Gives this thread's next render its time."""
        self._clock.deadline = time.monotonic() + MAX_RENDER_SECONDS

    def tick(self) -> str:
        """Called by each turn of a loop and each call of a macro."""
        if time.monotonic() > self._clock.deadline:
            raise RenderError(
                f"the chat template ran longer than {MAX_RENDER_SECONDS:g} s", "messages"
            )
        return ""

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """`*` and `**`, which make much out of little."""
        for sized, times in ((left, right), (right, left)):
            if hasattr(sized, "__len__") and isinstance(times, int) and operator == "*":
                if len(sized) * times > MAX_OUTPUT_CHARS:
                    raise RenderError("the chat template multiplies a text beyond bounds")
            elif isinstance(sized, int) and abs(sized) >= 2**64:
                raise RenderError("the chat template computes with numbers beyond bounds")
        if operator == "**" and isinstance(right, int) and right > 64:
            raise RenderError("the chat template computes with numbers beyond bounds")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model said, for training; a no-op."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Returns the block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tick_node() -> nodes.Node:
    call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
    return nodes.ExprStmt(call).set_lineno(1)


def _loops_over_content(tree: nodes.Template) -> bool:
    # A template that loops over a message's content is written for lists of parts.
    for loop in tree.find_all(nodes.For):
        of = loop.iter
        if isinstance(of, nodes.Getattr) and of.attr == "content":
            return True
        key = of.arg if isinstance(of, nodes.Getitem) else None
        if isinstance(key, nodes.Const) and key.value == "content":
            return True
        if isinstance(of, nodes.Name) and of.name == "content":
            return True
    return False


def _with_parsed_arguments(call: Any) -> Any:
    # Clients send arguments as JSON text; templates print them as JSON again.
    fields = as_object(call)
    function = as_object(fields.get("function")) if fields is not None else None
    if fields is None or function is None or not isinstance(function.get("arguments"), str):
        return call
    try:
        parsed = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call  # a model's own malformed call, replayed: the template gets the text
    return {**fields, "function": {**function, "arguments": parsed}}


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
        indent=None if indent is None else min(indent, 16),
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0][:500] if str(error) else ""
    if isinstance(error, jinja2.TemplateError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
