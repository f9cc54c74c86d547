"""What the server knows about the model it serves."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.engine.sampling import SamplingDefaults
from pagemill.server.errors import bad_request, model_not_found


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Constant facts about the served model. `names[0]` is the one in responses."""

    names: tuple[str, ...]
    max_model_len: int
    vocab_size: int
    pooling: bool
    created: int
    """Unix time at which it was loaded."""
    defaults: SamplingDefaults = SamplingDefaults()
    max_tokens_cap: int | None = None
    """Bound on generated tokens that the operator set; larger wishes are cut to it."""
    max_choices: int = 1024
    """Prompts times `n` of one request: what the engine can hold when it is otherwise idle."""
    max_logprobs: int = 20
    root: str = ""
    """Where the model came from."""

    @property
    def name(self) -> str:
        """The name in responses."""
        return self.names[0]

    def check_name(self, name: str | None) -> None:
        """Raises a 404 ApiError for a name this server does not know; no name is any model."""
        if name is not None and name not in self.names:
            raise model_not_found(name[:200])

    def check_generates(self) -> None:
        """Raises a 400 ApiError for an embedding model."""
        if self.pooling:
            raise bad_request(
                f"The model `{self.name}` makes embeddings and does not generate text: use"
                " /v1/embeddings.",
                "model",
            )

    def check_pools(self) -> None:
        """Raises a 400 ApiError for a generating model."""
        if not self.pooling:
            raise bad_request(
                f"The model `{self.name}` generates text and makes no embeddings: use"
                " /v1/completions or /v1/chat/completions.",
                "model",
            )
