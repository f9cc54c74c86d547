"""Formats by name. To add one: a constant in the file of its kind, and a row here.

In place of a constant a row may name a function of the model's `Checkpoint`, if its formats differ
between checkpoints.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from pagemill.config.plugins import entries, load_plugin
from pagemill.render.errors import RenderError
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import MessageFormat, ReasoningFormat, ToolFormat

TOOL_FORMATS: Mapping[str, str] = {
    "apertus": "json_formats:APERTUS",
    "cohere_command3": "json_formats:COHERE",
    "cohere_command4": "json_formats:COHERE",
    "deepseek_v3": "named_json_formats:DEEPSEEK_V3",
    "deepseek_v31": "named_json_formats:DEEPSEEK_V31",
    "deepseek_v32": "element_formats:DEEPSEEK_V32",
    "deepseek_v4": "element_formats:DEEPSEEK_V4",
    "deepseek_v41": "element_formats:DEEPSEEK_V41",
    "dots": "element_formats:DOTS",
    "ernie45": "json_formats:HERMES",
    "functiongemma": "other_formats:FUNCTIONGEMMA",
    "gemma4": "other_formats:GEMMA4",
    "gigachat3": "json_formats:GIGACHAT3",
    "glm45": "element_formats:GLM45",
    "glm47": "element_formats:GLM45",
    "granite": "json_formats:GRANITE",
    "granite-20b-fc": "json_formats:GRANITE_20B",
    "granite4": "json_formats:HERMES",
    "hermes": "json_formats:HERMES",
    "hf": "response_template:of_checkpoint",
    "hunyuan_a13b": "json_formats:TOOL_CALLS",
    "hy_v3": "element_formats:hunyuan_v3",
    "hy_v4": "element_formats:hunyuan_v4",
    "inkling": "message_formats:INKLING",
    "internlm": "json_formats:INTERNLM",
    "jamba": "json_formats:TOOL_CALLS",
    "k2_horizon": "element_formats:K2_HORIZON",
    "kimi_k2": "named_json_formats:KIMI_K2",
    "kimi_k3": "message_formats:KIMI_K3",
    "lfm2": "other_formats:LFM2",
    "ling3": "element_formats:GLM45",
    "llama3_json": "json_formats:LLAMA3",
    "llama4_json": "json_formats:LLAMA3",
    "llama4_pythonic": "other_formats:LLAMA4_PYTHONIC",
    "longcat": "json_formats:LONGCAT",
    "mimo": "element_formats:MIMO",
    "minicpm5": "element_formats:MINICPM5",
    "minimax_m2": "element_formats:MINIMAX_M2",
    "minimax_m3": "element_formats:MINIMAX_M3",
    "mistral": "named_json_formats:mistral",
    "muse_glimmer": "message_formats:MUSE_GLIMMER",
    "olmo3": "other_formats:OLMO3",
    "openai": "message_formats:HARMONY",
    "phi4_mini_json": "json_formats:PHI4_MINI",
    "plamo3": "named_json_formats:PLAMO3",
    "poolside_v1": "element_formats:GLM45",
    "pythonic": "other_formats:PYTHONIC",
    "qwen3_coder": "element_formats:QWEN3_CODER",
    "qwen3_json": "json_formats:HERMES",
    "qwen3_xml": "element_formats:QWEN3_CODER",
    "seed_oss": "element_formats:SEED_OSS",
    "step3": "element_formats:STEP3",
    "step3p5": "element_formats:QWEN3_CODER",
    "xlam": "json_formats:XLAM",
}
REASONING_FORMATS: Mapping[str, str] = {
    "cohere_command3": "reasoning_formats:COHERE",
    "cohere_command4": "reasoning_formats:COHERE",
    "deepseek_r1": "reasoning_formats:DEEPSEEK_R1",
    "deepseek_v3": "reasoning_formats:THINK",
    "deepseek_v4": "reasoning_formats:THINK",
    "deepseek_v41": "reasoning_formats:THINK",
    "ernie45": "reasoning_formats:ERNIE45",
    "gemma4": "reasoning_formats:GEMMA4",
    "glm45": "reasoning_formats:THINK",
    "glm47": "reasoning_formats:THINK",
    "granite": "reasoning_formats:GRANITE",
    "granite_thinking_parser": "reasoning_formats:NEMOTRON",
    "hf": "response_template:of_checkpoint",
    "holo2": "reasoning_formats:THINK",
    "hunyuan_a13b": "reasoning_formats:HUNYUAN_A13B",
    "hy_v3": "reasoning_formats:hunyuan",
    "hy_v4": "reasoning_formats:hunyuan",
    "inkling": "message_formats:INKLING",
    "k2_horizon": "reasoning_formats:K2_HORIZON",
    "kimi_k2": "reasoning_formats:THINK",
    "kimi_k3": "message_formats:KIMI_K3",
    "ling3": "reasoning_formats:THINK",
    "mimo": "reasoning_formats:THINK",
    "minicpmv": "reasoning_formats:THINK",
    "minimax_m2": "reasoning_formats:DEEPSEEK_R1",
    "minimax_m2_append_think": "reasoning_formats:THINK_IN_ANSWER",
    "minimax_m3": "reasoning_formats:MINIMAX_M3",
    "mistral": "reasoning_formats:mistral",
    "muse_glimmer": "message_formats:MUSE_GLIMMER",
    "nemotron_v3": "reasoning_formats:NEMOTRON",
    "olmo3": "reasoning_formats:THINK",
    "openai_gptoss": "message_formats:HARMONY",
    "plamo3": "reasoning_formats:PLAMO3",
    "poolside_v1": "reasoning_formats:THINK",
    "qwen3": "reasoning_formats:THINK",
    "seed_oss": "reasoning_formats:SEED_OSS",
    "step3": "reasoning_formats:DEEPSEEK_R1",
    "step3p5": "reasoning_formats:THINK",
    "think": "reasoning_formats:THINK",
}
GROUPS = {
    "--reasoning-parser": "pagemill.reasoning_formats",
    "--tool-call-parser": "pagemill.tool_formats",
}
"""Entry points of other packages whose values are further formats."""
NONE = "none"
_HF = "hf"

PLAIN = Checkpoint()
"""A checkpoint that says nothing of its own."""

AnyFormat = ToolFormat | ReasoningFormat | MessageFormat


class FoundFormats(NamedTuple):
    """The formats of one model: `messages` alone, or any of the others."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat | None
    messages: MessageFormat | None


def choose_formats(
    reasoning: str | None, tools: str | None, template: str, checkpoint: Checkpoint = PLAIN
) -> FoundFormats:
    """The formats of these names; without a name, or with None, those that `template` surely has,
    or else, if both are None, the one that `checkpoint` describes.

    Raises:
      RenderError: the tables do not have a name, the two do not go together, or `checkpoint` does
        not say what a format needs.
    """
    found: list[AnyFormat | None] = [
        _choose(REASONING_FORMATS, reasoning, template, "--reasoning-parser", checkpoint),
        _choose(TOOL_FORMATS, tools, template, "--tool-call-parser", checkpoint),
    ]
    if not any((reasoning, tools, *found)) and "response_template" in checkpoint.settings:
        with contextlib.suppress(RenderError):  # one that cannot be read is none
            found = [load_format(TOOL_FORMATS[_HF], checkpoint)]
    messages = [each for each in found if isinstance(each, MessageFormat)]
    if messages and any(each != messages[0] for each in found if each is not None):
        raise RenderError(
            "--reasoning-parser and --tool-call-parser name different formats, one of which is of"
            " whole messages: name it for both, or only once"
        )
    return FoundFormats(
        next((each for each in found if isinstance(each, ReasoningFormat)), None),
        next((each for each in found if isinstance(each, ToolFormat)), None),
        messages[0] if messages else None,
    )


def check_names(reasoning: str | None, tools: str | None) -> None:
    """Checks names before a model is read; loads no format.

    Raises:
      RenderError: neither the tables nor an installed package have one of them.
    """
    for table, name, flag in (
        (REASONING_FORMATS, reasoning, "--reasoning-parser"),
        (TOOL_FORMATS, tools, "--tool-call-parser"),
    ):
        if name is None or name == NONE or name in table:
            continue
        if all(entry.name != name for entry in entries(GROUPS[flag])):
            raise _unknown(table, name, flag)


def load_format(path: str, checkpoint: Checkpoint = PLAIN) -> AnyFormat:
    """The format of a row, as `checkpoint` has it.

    Raises:
      RenderError: `checkpoint` does not say what the format needs.
    """
    module, _, name = path.partition(":")
    found = _of(
        vars(importlib.import_module(f"pagemill.render.formats.{module}"))[name], checkpoint
    )
    assert isinstance(found, AnyFormat)
    return found


def _of(value: object, checkpoint: Checkpoint) -> object:
    """A constant, or what a function of the checkpoint makes."""
    return cast(Callable[[Checkpoint], object], value)(checkpoint) if callable(value) else value


def _installed(group: str, name: str, checkpoint: Checkpoint) -> AnyFormat | None:
    """The format `name` of an installed package."""
    value = load_plugin(group, name)
    if value is None:
        return None
    found = _of(value, checkpoint)
    if not isinstance(found, AnyFormat):
        raise RenderError(f"the plugin {name} ({group}) is a {type(found).__name__}, not a format")
    return found


def _unknown(table: Mapping[str, str], name: str, flag: str) -> RenderError:
    known = ", ".join([*sorted(table), *(entry.name for entry in entries(GROUPS[flag])), NONE])
    return RenderError(f"{flag}: unknown format {name[:40]!r}; known are {known}")


def _choose(
    table: Mapping[str, str],
    name: str | None,
    template: str,
    flag: str,
    checkpoint: Checkpoint,
) -> AnyFormat | None:
    if name == NONE:
        return None
    if name is not None:
        if name in table:
            return load_format(table[name], checkpoint)
        group = GROUPS[flag]
        if (installed := _installed(group, name, checkpoint)) is not None:
            return installed
        raise _unknown(table, name, flag)
    found: list[AnyFormat] = []
    for path in sorted({*table.values()} - {table[_HF]}):
        each = load_format(path, checkpoint)
        if each.is_in(template) and each not in found:
            found.append(each)
    most = max((len(each.marks) for each in found), default=0)
    best = [each for each in found if len(each.marks) == most]
    return best[0] if len(best) == 1 else None


def marker_ids(
    token_id: Callable[[str], int | None], checkpoint: Checkpoint = PLAIN
) -> frozenset[int]:
    """Tokens of a vocabulary that are markers of any format.

    Args:
      token_id: the id of a marker that is a token of its own.
      checkpoint: whose vocabulary it is.
    """
    paths = {*TOOL_FORMATS.values(), *REASONING_FORMATS.values()} - {TOOL_FORMATS[_HF]}
    formats = (load_format(path, checkpoint) for path in paths)
    found = (token_id(marker) for each in formats for marker in each.markers)
    return frozenset(index for index in found if index is not None)
