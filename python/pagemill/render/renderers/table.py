"""Renderers by name. To add one that needs no Jinja: a module with a `write`, and a row here."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array
from pagemill.render.mistral_vocabulary import TEKKEN
from pagemill.render.output_machine import FormatNames
from pagemill.render.renderers.base import ChatRenderer, TextRenderer

AUTO = "auto"
HF = "hf"
"""Jinja, by the model's own template: whatever has no row."""


class Row(NamedTuple):
    """A renderer other than Jinja: a function that writes a chat, or a class that opens a folder.

    `models` are the values of `model_type` and `architectures` in a configuration that choose it;
    `variables` are the `chat_template_kwargs` that it reads; `formats` those of the output; `ends`
    the control tokens that end an output, whatever the model's files say. `file`: a name in the
    model's folder that chooses it if there is no chat template. `is_mistral`: the tokenizer's files
    are Mistral's, and `path` names a class.
    """

    path: str
    models: frozenset[str]
    variables: frozenset[str]
    formats: FormatNames
    ends: tuple[str, ...]
    file: str | None = None
    is_mistral: bool = False


RENDERERS: Mapping[str, Row] = {
    "deepseek_v32": Row(
        "deepseek_v32:write",
        frozenset({"deepseek_v32", "DeepseekV32ForCausalLM"}),
        frozenset({"thinking", "enable_thinking"}),
        FormatNames("deepseek_v3", "deepseek_v32"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "deepseek_v4": Row(
        "deepseek_v4:write",
        frozenset({"deepseek_v4", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"}),
        frozenset({"thinking", "enable_thinking", "reasoning_effort"}),
        FormatNames("deepseek_v4", "deepseek_v4"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "deepseek_v41": Row(
        "deepseek_v4:write_v41",
        frozenset({"deepseek_v41", "DeepseekV41ForCausalLM"}),
        frozenset({"thinking", "enable_thinking", "reasoning_effort"}),
        FormatNames("deepseek_v41", "deepseek_v41"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "harmony": Row(
        "harmony:write",
        frozenset({"gpt_oss", "gpt-oss", "GptOssForCausalLM"}),
        frozenset({"reasoning_effort", "model_identity"}),
        FormatNames("openai_gptoss", "openai"),
        ("<|return|>", "<|call|>"),
    ),
    "mistral": Row(
        "mistral:MistralChats",
        frozenset(),
        frozenset(),
        FormatNames("mistral", "mistral"),
        ("</s>",),
        file=TEKKEN,
        is_mistral=True,
    ),
}


def choose(
    mode: str,
    config: Mapping[str, Any],
    *,
    has_own_template: bool,
    files: Collection[str] = (),
) -> Row | None:
    """The row for a model; None for Jinja.

    Args:
      mode: a name of the table, "hf", or "auto": by the model's configuration.
      config: the model's.
      has_own_template: the operator gave a template, which means Jinja unless `mode` names a row.
      files: names in the folder of a model without a chat template; none if it has one.

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
    rows = RENDERERS.values()
    return next((row for row in rows if row.models & names or row.file in files), None)


def load(row: Row, folder: Path, control_tokens: Sequence[str]) -> ChatRenderer:
    """The renderer of a row, for the model in `folder`, whose vocabulary has these control tokens.

    Raises:
      RenderError: a package that it needs is missing, or the folder lacks a file.
    """
    module, _, name = row.path.partition(":")
    made = vars(importlib.import_module(f"pagemill.render.renderers.{module}"))[name]
    if row.is_mistral:
        return made(folder)
    return TextRenderer(made, row.variables, control_tokens)
