"""Rows of many prompts without a server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import numpy as np

from pagemill.engine.core import EngineCore
from pagemill.engine.limits import check_prompt
from pagemill.engine.messages import ChoiceRequest, EngineRequest
from pagemill.engine.offline_batch import OfflineBatch, OfflineQueue
from pagemill.engine.outputs import ChoiceOutput, EngineError
from pagemill.engine.progress_bar import ProgressBar
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.task import Pooled


def pool(
    core: EngineCore,
    queue: OfflineQueue,
    pooled: Pooled,
    prompts: Sequence[RenderedPrompt],
    ids: Iterator[int],
    progress: TextIO | None,
) -> list[np.ndarray]:
    """The rows of each prompt: float32 [width], or by `pooled` of each token [tokens, width].

    Raises:
        EngineError: a prompt is too long, or failed.
    """
    built = core.built
    for prompt in prompts:
        if len(prompt) > built.max_model_len:
            raise EngineError(
                "INVALID_ARGUMENT",
                f"a text has {len(prompt)} tokens; the model takes {built.max_model_len}",
            )
        check_prompt(prompt, built.vocab_size, "texts")
    requests = [EngineRequest(prompt, (ChoiceRequest(next(ids), None),)) for prompt in prompts]
    rows: dict[int, np.ndarray] = {}
    with contextlib.closing(ProgressBar(len(requests), progress or sys.stderr)) as bar:

        def take(output: ChoiceOutput) -> None:
            if output.pooled is not None:
                prompt = prompts[output.index]
                rows[output.index] = pooled.rows(output.pooled, prompt.token_ids)
            bar.add(tokens=0, finished=output.finish_reason is not None)

        OfflineBatch(queue, requests, take).run()
    return [rows[index] for index in range(len(prompts))]
