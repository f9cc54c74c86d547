"""English text that every Python installation has: its own reference manual."""

from __future__ import annotations

import pydoc_data.topics

from pagemill.render.renderer import Renderer
from pagemill.weights.source import ModelSource


def corpus_tokens(source: ModelSource) -> list[int]:
    """The manual's topics as token ids of the model of `source`; about 10^5 of them."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return Renderer.open(source).encode(text, False)


def prompts(tokens: list[int], count: int, shortest: int, longest: int) -> list[list[int]]:
    """`count` stretches of `tokens`, of lengths that grow geometrically between the two."""
    assert len(tokens) >= longest
    result: list[list[int]] = []
    for index in range(count):
        length = round(shortest * (longest / shortest) ** (index / (count - 1)))
        start = (index * 7919) % (len(tokens) - length + 1)
        result.append(tokens[start : start + length])
    return result
