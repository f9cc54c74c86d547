"""Requests to families that write what is said as text and nothing else."""

from __future__ import annotations

import re

from pagemill.render.errors import RenderError
from pagemill.render.transcription.base import SpeechTask

_LANGUAGE = re.compile(r"[a-z]{2}")  # ISO 639-1


def check_text_alone(task: SpeechTask) -> None:
    """The task has neither timestamps nor a translation.

    Raises:
        RenderError: it has; names the field.
    """
    if task.to_language is not None:
        raise RenderError(
            "this model transcribes here and does not translate: send the audio in a message"
            " of a chat, and say in it what to write",
            "model",
        )
    if task.timestamps:
        raise RenderError(
            "this model writes no timestamps: send `json` or `text`", "response_format"
        )


def check_plain(task: SpeechTask) -> SpeechTask:
    """The task, if a family can do it that takes no prompt either.

    Raises:
        RenderError: it cannot; names the field.
    """
    check_text_alone(task)
    if task.prompt:
        raise RenderError(
            "this model takes no `prompt` and no `hotwords` with audio that it transcribes",
            "prompt",
        )
    if task.language is not None and not _LANGUAGE.fullmatch(task.language):
        raise RenderError(
            f"`language` {task.language[:40]!r} has to be two letters, such as `en`", "language"
        )
    return task
