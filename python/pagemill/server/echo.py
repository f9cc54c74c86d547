"""Prompts as `echo` repeats them: control tokens show, because the model read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.rendering import Renderer, Rendering


async def echoed_texts(
    rendering: Rendering,
    texts: Sequence[str | None],
    rendered: Sequence[RenderedPrompt],
    prompts: Sequence[np.ndarray],
) -> list[str]:
    """What echo says of each prompt: the text that was sent, or else that of its tokens.

    Args:
        rendering: decodes tokens.
        texts: what the client sent; None for token ids.
        rendered: the prompts before truncation.
        prompts: token ids of the prompts after it.
    """
    echoed: list[str] = []
    for text, sent, prompt in zip(texts, rendered, prompts, strict=True):
        is_cut = len(prompt) < len(sent)
        if text is None or is_cut:
            tokens = prompt if is_cut else sent.token_ids
            text = await rendering.decode(tokens.tolist(), skip_special_tokens=False)
        echoed.append(text)
    return echoed


def prompt_offsets(renderer: Renderer, prompt: Sequence[int], echoed: str) -> list[int]:
    """The character of `echoed` at which each token of `prompt` begins."""
    detokenizer = renderer.detokenizer((), skip_special_tokens=False)
    offsets: list[int] = []
    length = 0
    for token in prompt:
        offsets.append(length)
        length += len(detokenizer.push((token,)))
    # Tokens that the tokenizer put before a text, like BOS, are not in it.
    extra = length + len(detokenizer.flush()) - len(echoed)
    return [max(0, offset - extra) if offset else 0 for offset in offsets]
