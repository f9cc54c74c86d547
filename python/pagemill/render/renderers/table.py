"""Renderers by name. To add one that needs no Jinja: a module with a `write`, and a row here."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from pagemill.render import tool_prompt
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array
from pagemill.render.output_machine import FormatNames
from pagemill.render.renderers.base import RESPONSE_FORMAT, ChatRenderer, TextRenderer

AUTO = "auto"
HF = "hf"
"""Jinja, by the model's own template: whatever has no row."""


class Row(NamedTuple):
    """A renderer other than Jinja: a function that writes a chat, or a class that opens a folder.

    `models` are the values of `model_type` and `architectures` in a configuration that choose it;
    `variables` are the `chat_template_kwargs` that it reads; `formats` those of the output; `ends`
    the control tokens that end an output, whatever the model's files say. `vocabulary`: a
    function that opens the tokenizer of a model's folder if that is no tokenizer.json. `file`: a
    name in that folder that chooses the row if there is no tokenizer.json or no chat template.
    """

    path: str
    models: frozenset[str]
    variables: frozenset[str]
    formats: FormatNames
    ends: tuple[str, ...]
    vocabulary: str = ""
    file: str | None = None


RENDERERS: Mapping[str, Row] = {
    "deepseek_v32": Row(
        "deepseek_v32:write",
        frozenset({"deepseek_v32", "DeepseekV32ForCausalLM"}),
        frozenset({"thinking", "enable_thinking", RESPONSE_FORMAT}),
        FormatNames("deepseek_v3", "deepseek_v32"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "deepseek_v4": Row(
        "deepseek_v4:write",
        frozenset({"deepseek_v4", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"}),
        frozenset({"thinking", "enable_thinking", "reasoning_effort", RESPONSE_FORMAT}),
        FormatNames("deepseek_v4", "deepseek_v4"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "deepseek_v41": Row(
        "deepseek_v4:write_v41",
        frozenset({"deepseek_v41", "DeepseekV41ForCausalLM"}),
        frozenset({"thinking", "enable_thinking", "reasoning_effort", RESPONSE_FORMAT}),
        FormatNames("deepseek_v41", "deepseek_v41"),
        ("<｜end▁of▁sentence｜>",),
    ),
    "grok2": Row(
        "grok2:write",
        frozenset(),
        frozenset(),
        FormatNames("none", tool_prompt.FORMAT),
        ("<|separator|>", "<|eos|>"),
        vocabulary="grok_vocabulary:open_vocabulary",
        file="tokenizer.tok.json",
    ),
    "harmony": Row(
        "harmony:write",
        frozenset({"gpt_oss", "gpt-oss", "GptOssForCausalLM"}),
        frozenset({"reasoning_effort", "model_identity", RESPONSE_FORMAT}),
        FormatNames("openai_gptoss", "openai"),
        ("<|return|>", "<|call|>"),
    ),
    "mistral": Row(
        "mistral:MistralChats",
        frozenset(),
        frozenset(),
        FormatNames("mistral", "mistral"),
        ("</s>",),
        vocabulary="mistral_vocabulary:open_vocabulary",
        file="tekken.json",
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
      files: names in the model's folder; none if a tokenizer.json and a chat template are there.

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
    made = _named(f"pagemill.render.renderers.{row.path}")
    if isinstance(made, type):
        return made(folder)
    return TextRenderer(made, row.variables, control_tokens)


def open_vocabulary(row: Row, folder: Path, cache: Path | None) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer of the model in `folder`, and its tokens by their roles.

    Args:
      row: one with a `vocabulary`.
      folder: the model's.
      cache: the folder where what takes long to derive is kept for the next start.

    Raises:
      RenderError: the folder lacks the file, or it cannot be read.
    """
    return _named(f"pagemill.render.{row.vocabulary}")(folder, cache)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return vars(importlib.import_module(module))[name]
