"""English text that is the same on every machine: documentation in the locked numpy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pagemill.render.renderer import Renderer
from pagemill.weights.source import ModelSource

_FILES = ("_core/fromnumeric.py", "lib/_function_base_impl.py")


def _docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield text


def corpus_tokens(source: ModelSource) -> list[int]:
    """Docstrings of two of numpy's files as token ids of the model of `source`; about 70,000."""
    root = Path(np.__file__).parent
    text = "\n\n".join(doc for name in _FILES for doc in _docstrings(root / name))
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


def windows(tokens: list[int], count: int, length: int) -> list[list[int]]:
    """`count` windows spread evenly over `tokens`."""
    stride = (len(tokens) - length) // max(count - 1, 1)
    return [tokens[i * stride : i * stride + length] for i in range(count)]
