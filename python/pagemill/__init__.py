"""Pagemill: a small, fast engine and server for language models.

`pagemill.LLM` is the offline interface; `pagemill serve` the server. Importing this package imports
nothing else of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagemill.engine.llm import LLM as LLM
    from pagemill.engine.offline_beams import BeamSearchParams as BeamSearchParams
    from pagemill.engine.sampling import RepetitionDetectionParams as RepetitionDetectionParams
    from pagemill.engine.sampling import SamplingParams as SamplingParams
    from pagemill.engine.turns import StreamingInput as StreamingInput

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "BeamSearchParams",
    "RepetitionDetectionParams",
    "SamplingParams",
    "StreamingInput",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Import the offline interface at its first use (PEP 562), so that `import pagemill` stays
    instant."""
    if name == "LLM":
        from pagemill.engine.llm import LLM

        return LLM
    if name == "BeamSearchParams":
        from pagemill.engine.offline_beams import BeamSearchParams

        return BeamSearchParams
    if name == "RepetitionDetectionParams":
        from pagemill.engine.sampling import RepetitionDetectionParams

        return RepetitionDetectionParams
    if name == "SamplingParams":
        from pagemill.engine.sampling import SamplingParams

        return SamplingParams
    if name == "StreamingInput":
        from pagemill.engine.turns import StreamingInput

        return StreamingInput
    raise AttributeError(f"module 'pagemill' has no attribute {name!r}")
