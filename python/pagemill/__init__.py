"""Pagemill: a small, fast engine and server for language models.

`pagemill.LLM` is the offline interface; `pagemill serve` the server. Importing this package imports
nothing else of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagemill.engine.llm import LLM as LLM

__version__ = "0.1.0"
__all__ = ["LLM", "__version__"]


def __getattr__(name: str) -> object:
    """Import `LLM` at its first use (PEP 562), so that `import pagemill` stays instant."""
    if name == "LLM":
        from pagemill.engine.llm import LLM

        return LLM
    raise AttributeError(f"module 'pagemill' has no attribute {name!r}")
