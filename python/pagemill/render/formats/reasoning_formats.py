"""How models write what they think.

Line breaks beside the markers belong to neither side: templates write them back when they show a
message.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.format import ReasoningFormat

THINK = ReasoningFormat(("<think>",), ("</think>",), marks=("</think>",))
"""Qwen3, GLM and many others; the output, or the prompt, has the opener."""

DEEPSEEK_R1 = ReasoningFormat(("<think>",), ("</think>",), begins_within=True)
"""The same, of models that begin to think without it."""

THINK_IN_ANSWER = replace(DEEPSEEK_R1, is_answer=True)
"""The same, for clients that want the reasoning within the answer, as MiniMax M2's do."""

NEMOTRON = replace(
    THINK,
    marks=(),
    answers_if={"enable_thinking": False, "force_nonempty_content": True},
)


def hunyuan(checkpoint: Checkpoint) -> ReasoningFormat:
    """Hunyuan V3 and V4: the tags have the checkpoint's suffix."""
    suffix = checkpoint.suffix("think")
    if not suffix:
        return THINK
    return ReasoningFormat(
        (f"<think{suffix}>",), (f"</think{suffix}>",), marks=(f"</think{suffix}>",)
    )


COHERE = ReasoningFormat(
    ("<|START_THINKING|>",),
    ("<|END_THINKING|>",),
    drops=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    marks=("<|START_THINKING|>",),
)
ERNIE45 = ReasoningFormat(
    ("<think>",), ("</think>",), drops=("<response>", "</response>"), begins_within=True
)
GEMMA4 = ReasoningFormat(
    ("<|channel>",), ("<channel|>",), label="thought", marks=("<|channel>", "<channel|>")
)
GRANITE = ReasoningFormat(
    ("Here is my thought process:", "Here's my thought process:"),
    ("Here is my response:", "Here's my response:"),
    marks=("Here is my thought process:",),
)
HUNYUAN_A13B = ReasoningFormat(
    ("<think>",), ("</think>",), drops=("<answer>", "</answer>"), marks=("</think>", "<answer>")
)
K2_HORIZON = ReasoningFormat(
    ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
    ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    marks=("<ifm|think>",),
)
MINIMAX_M3 = ReasoningFormat(("<mm:think>",), ("</mm:think>",), marks=("</mm:think>",))
MISTRAL = ReasoningFormat(("[THINK]",), ("[/THINK]",), marks=("[/THINK]",))


def mistral(checkpoint: Checkpoint) -> ReasoningFormat:
    """Vocabularies before version 13 have no tokens for it, and their models write `<think>`."""
    is_old = "[TOOL_CALLS]" in checkpoint.tokens and "[THINK]" not in checkpoint.tokens
    return THINK if is_old else MISTRAL


PLAMO3 = ReasoningFormat(
    ("<|plamo:begin_think:plamo|>",),
    ("<|plamo:end_think:plamo|>",),
    marks=("<|plamo:end_think:plamo|>",),
)
SEED_OSS = ReasoningFormat(("<seed:think>",), ("</seed:think>",), marks=("</seed:think>",))
