"""Text, messages and token ids: tokenizer, chat template, detokenizer, stop strings.

Imports neither the engine nor the server. `Renderer.open(source)` is the way in.
"""

from pagemill.render.errors import RenderError

__all__ = ["RenderError"]
