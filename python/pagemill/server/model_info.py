"""What the server knows about the model it serves."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.engine.sampling import SamplingDefaults
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.task import Pooled, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Constant facts about the served model. `names[0]` is the one in responses."""

    names: tuple[str, ...]
    max_model_len: int
    vocab_size: int
    created: int
    """Unix time at which it was loaded."""
    pooled: Pooled | None = None
    """What it gives if it pools instead of generating."""
    defaults: SamplingDefaults = SamplingDefaults()
    max_tokens_cap: int | None = None
    """Bound on generated tokens that the operator set; larger wishes are cut to it."""
    max_choices: int = 1024
    """Prompts times `n` of one request: what the engine can hold when it is otherwise idle."""
    max_logprobs: int = 20
    embeds_width: int = 0
    """Of the rows of embeddings that prompts may be; 0: they are token ids."""
    encoder_text: EncoderText | None = None
    """What its encoder takes if that reads the text of a prompt."""
    root: str = ""
    """Where the model came from."""
    adapter: str = ""
    """The adapter that its name stands for; "": the model as it is."""
    adapters: bool = False
    """Whether requests may name adapters."""
    fingerprint: str = ""
    """`system_fingerprint` of responses."""
    generates: frozenset[Task] = frozenset({Task.GENERATE})
    """What it is for if it does not pool."""
    alignment: tuple[int, int] | None = None
    """`ModelFacts.alignment`."""

    @property
    def rows(self) -> Pooled | None:
        """What it gives for prompts after which it does not generate; None: it cannot be asked."""
        if self.alignment is None:
            return self.pooled
        heads, head_dim = self.alignment
        return Pooled(task=Task.TOKEN_EMBED, width=heads * head_dim)

    @property
    def tasks(self) -> frozenset[Task]:
        """What it is for."""
        return self.generates if self.pooled is None else frozenset({self.pooled.task})

    @property
    def name(self) -> str:
        """The name in responses."""
        return self.names[0]
