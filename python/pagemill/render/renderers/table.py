"""Renderers by name. To add one that needs no Jinja: a module with a `write`, and a row here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array
from pagemill.render.output_machine import FormatNames
from pagemill.render.renderers.base import TextRenderer

AUTO = "auto"
HF = "hf"
"""Jinja, by the model's own template: whatever has no row."""


class Row(NamedTuple):
    """A renderer that is a function of this program.

    `models` are the values of `model_type` and `architectures` in a configuration that choose it;
    `variables` are the `chat_template_kwargs` that it reads; `formats` those of the output; `ends`
    the control tokens that end an output, whatever the model's files say.
    """

    path: str
    models: frozenset[str]
    variables: frozenset[str]
    formats: FormatNames
    ends: tuple[str, ...]


RENDERERS: Mapping[str, Row] = {
    "deepseek_v32": Row(
        "deepseek_v32:write",
        frozenset({"deepseek_v32", "DeepseekV32ForCausalLM"}),
        frozenset({"thinking", "enable_thinking"}),
        FormatNames("deepseek_v3", "deepseek_v32"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "harmony": Row(
        "harmony:write",
        frozenset({"gpt_oss", "gpt-oss", "GptOssForCausalLM"}),
        frozenset({"reasoning_effort", "model_identity"}),
        FormatNames("openai_gptoss", "openai"),
        ("<|return|>", "<|call|>"),
    ),
}


def choose(mode: str, config: Mapping[str, Any], *, has_own_template: bool) -> Row | None:
    """The row for a model; None for Jinja.

    Args:
      mode: a name of the table, "hf", or "auto": by the model's configuration.
      config: the model's.
      has_own_template: the operator gave a template, which means Jinja unless `mode` names a row.

    Raises:
      RenderError: the table does not have the name.
    """
    if mode == HF or (mode == AUTO and has_own_template):
        return None
    if mode != AUTO:
        if mode not in RENDERERS:
            known = ", ".join([AUTO, HF, *sorted(RENDERERS)])
            raise RenderError(f"--tokenizer-mode: unknown {mode[:40]!r}; known are {known}")
        return RENDERERS[mode]
    kinds = {config.get("model_type"), *(as_array(config.get("architectures")) or ())}
    names = {kind for kind in kinds if isinstance(kind, str)}
    return next((row for row in RENDERERS.values() if row.models & names), None)


def load(row: Row, control_tokens: Sequence[str]) -> TextRenderer:
    """The renderer of a row, for a vocabulary with these control tokens."""
    module, _, name = row.path.partition(":")
    write = vars(importlib.import_module(f"pagemill.render.renderers.{module}"))[name]
    return TextRenderer(write, row.variables, control_tokens)
