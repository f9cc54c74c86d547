"""Writes docs/output_formats.md: every format, with an example that the tests read back.

python -m pagemill.render.testing.format_reference > docs/output_formats.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pagemill.render.formats.format import MessageFormat, ReasoningFormat
from pagemill.render.formats.table import REASONING_FORMATS, TOOL_FORMATS, load_format
from pagemill.render.testing.wire_formats import CHECKPOINT, WRITERS, ToolCall

_EXAMPLE = [ToolCall("get_weather", {"city": "Paris", "days": 2})]
_RULE = "|---|---|---|"
_HEAD = """# Output formats

How models write calls of tools and reasoning, by the names of `--tool-call-parser` and
`--reasoning-parser`; [http.md](http.md#tools-and-reasoning) says what becomes of them. Without a
name, the server takes the format that the chat template surely has, if its row says that templates
show it. ⏎ is a line break. `hf` is what the model's `tokenizer_config.json` describes as its
`response_template` ([more](rendering.md#formats-that-a-checkpoint-says)). A suffix of tags, such as
`:6124c78e`, is the one that the vocabulary has.

This page is written by `python -m pagemill.render.testing.format_reference`; a format is a table of
states in `python/pagemill/render/formats/`
([why](decisions/0047-output-formats-are-tables-of-states.md)).
"""


def reference() -> str:
    """The page."""
    lines = [_HEAD, "## Calls of tools\n", "| names | shown by templates | example |", _RULE]
    for path, names in _rows(TOOL_FORMATS):
        if path == TOOL_FORMATS["hf"]:
            lines.append(f"| {names} | no | as the template says |")
            continue
        lines.append(f"| {names} | {_is_shown(path)} | {_code(WRITERS[path](_EXAMPLE))} |")
    lines += ["\n## Reasoning\n", "| names | shown by templates | around it |", _RULE]
    for path, names in _rows(REASONING_FORMATS):
        lines.append(f"| {names} | {_is_shown(path)} | {_around(path)} |")
    return "\n".join(lines) + "\n"


def _rows(table: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    names: dict[str, list[str]] = {}
    for name, path in table.items():
        names.setdefault(path, []).append(f"`{name}`")
    return [(path, ", ".join(each)) for path, each in names.items()]


def _is_shown(path: str) -> str:
    return "yes" if load_format(path, CHECKPOINT).marks else "no"


def _around(path: str) -> str:
    if path == REASONING_FORMATS["hf"]:
        return "as the template says"
    kind = load_format(path, CHECKPOINT)
    if isinstance(kind, MessageFormat):
        return "messages, whose headers say what they are"
    assert isinstance(kind, ReasoningFormat)
    openers, closers = (", ".join(map(_code, each)) for each in (kind.openers, kind.closers))
    opener = f"{openers} or nothing" if kind.begins_within else openers
    return f"{opener}; {closers}{'; part of the answer' if kind.is_answer else ''}"


def _code(text: str) -> str:
    text = text.strip().replace("\n", "⏎").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(reference(), end="")
